//! What `/metrics` tells: requests, their times, creates, routes, execs, and what the store holds now.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::{
    CounterVec, Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use sandboxer_core::ledger::{FEES, provider_account};
use sandboxer_core::route::BreakerState;
use sandboxer_core::{Error, ErrorKind, Money, Result, State};
use sandboxer_engine::Engine;

/// From a tenth of a millisecond to ten seconds: an exec of nothing and a slow setup are both told apart.
const BUCKETS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    latency: HistogramVec,
    pub(crate) creates: IntCounterVec,
    pub(crate) execs: IntCounter,
    pub(crate) connections: IntGauge,
    sandboxes: IntGaugeVec,
    outbox: IntGaugeVec,
    dead: IntGaugeVec,
    credits: GaugeVec,
    absorbed: CounterVec,
    breakers: IntGaugeVec,
    pub(crate) routes: IntCounterVec,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self> {
        Self::build().map_err(|source| {
            Error::new(ErrorKind::Internal, "the metrics cannot be set up").with_source(source)
        })
    }

    fn build() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let family = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone())).map(|()| family)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone())).map(|()| family)
        };
        let credits = GaugeVec::new(
            Opts::new("sandboxer_credits_usd", "Dollars by what they are: available, held, charged"),
            &["what"],
        )?;
        registry.register(Box::new(credits.clone()))?;
        let absorbed = CounterVec::new(
            Opts::new(
                "sandboxer_credits_absorbed_usd_total",
                "Dollars that sandboxes cost above their holds, charged to nobody, as this process settled them",
            ),
            &["extension"],
        )?;
        registry.register(Box::new(absorbed.clone()))?;
        let latency = HistogramVec::new(
            HistogramOpts::new("sandboxer_http_request_duration_seconds", "Time to the head of the answer")
                .buckets(BUCKETS.to_vec()),
            &["method", "route"],
        )?;
        registry.register(Box::new(latency.clone()))?;
        let execs = IntCounter::new("sandboxer_execs_total", "Execs started through this server")?;
        registry.register(Box::new(execs.clone()))?;
        let connections = IntGauge::new("sandboxer_http_connections", "Open connections")?;
        registry.register(Box::new(connections.clone()))?;
        gauges("sandboxer_build_info", "Always 1; the labels say what runs", &["version"])?
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        Ok(Self {
            requests: counters(
                "sandboxer_http_requests_total",
                "Requests by route and status",
                &["method", "route", "status"],
            )?,
            creates: counters("sandboxer_creates_total", "Creates by their outcome", &["outcome"])?,
            sandboxes: gauges("sandboxer_sandboxes", "Living sandboxes by state", &["state"])?,
            outbox: gauges("sandboxer_outbox_pending", "Events still to be delivered", &["sink"])?,
            dead: gauges("sandboxer_outbox_dead", "Deliveries that were given up", &["sink"])?,
            breakers: gauges(
                "sandboxer_route_breakers",
                "Backends that are left alone (open) or tried again (half_open), by the kind of trouble",
                &["extension", "host", "class", "state"],
            )?,
            routes: counters(
                "sandboxer_route_decisions_total",
                "Creates by what routing made of them",
                &["outcome"],
            )?,
            credits,
            absorbed,
            latency,
            execs,
            connections,
            registry,
        })
    }

    pub(crate) fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let mut digits = [0_u8; 3];
        let status = three_digits(status, &mut digits);
        self.requests.with_label_values(&[method, route, status]).inc();
        self.latency.with_label_values(&[method, route]).observe(took.as_secs_f64());
    }

    /// The text of now. Only living sandboxes are read, so what is remembered of the past costs nothing.
    pub(crate) async fn render(&self, engine: &Engine) -> Result<Vec<u8>> {
        let living = engine.store().living().await?;
        for state in State::ALL.into_iter().filter(|state| state.is_living()) {
            let count = living.iter().filter(|stored| stored.record.state() == state).count();
            self.sandboxes.with_label_values(&[state.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let sinks = engine.sink_stats().await?;
        // A sink that is no more leaves no number behind.
        self.outbox.reset();
        self.dead.reset();
        for stats in sinks {
            let sink = [stats.sink.as_str()];
            self.outbox.with_label_values(&sink).set(i64::try_from(stats.pending).unwrap_or(i64::MAX));
            self.dead.with_label_values(&sink).set(i64::try_from(stats.dead).unwrap_or(i64::MAX));
        }
        self.money(engine).await?;
        // Who has absorbed nothing yet has a number too: an increase from nothing would be seen by nobody.
        let nothing = engine.registry().ids().map(|id| (id.to_owned(), Money::ZERO));
        self.absorbed(&nothing.chain(engine.absorbed()).collect());
        self.trouble(engine).await?;
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).map_err(|source| {
            Error::new(ErrorKind::Internal, "the metrics cannot be written").with_source(source)
        })?;
        Ok(text)
    }
}

impl Metrics {
    /// A few rows: the balances are kept, not added up.
    async fn money(&self, engine: &Engine) -> Result<()> {
        let (mut available, mut held, mut charged) = (Money::ZERO, Money::ZERO, Money::ZERO);
        for account in engine.store().accounts().await? {
            available = available.checked_add(account.balance)?;
            held = held.checked_add(account.held)?;
        }
        let providers = engine.registry().ids().map(provider_account);
        for name in providers.chain([FEES.to_owned()]) {
            if let Some(account) = engine.store().account(&name).await? {
                charged = charged.checked_add(account.balance)?;
            }
        }
        for (what, amount) in [("available", available), ("held", held), ("charged", charged)] {
            // Only shown, never counted with.
            self.credits.with_label_values(&[what]).set(amount.nanos() as f64 / 1e9);
        }
        Ok(())
    }

    /// Brings the counters to these totals, which only grow.
    fn absorbed(&self, totals: &BTreeMap<String, Money>) {
        for (extension, total) in totals {
            let counter = self.absorbed.with_label_values(&[extension]);
            // Only shown, never counted with.
            counter.inc_by((total.nanos() as f64 / 1e9 - counter.get()).max(0.0));
        }
    }

    async fn trouble(&self, engine: &Engine) -> Result<()> {
        let now = engine.now();
        self.breakers.reset();
        for (backend, breaker) in engine.store().route_past("").await?.breakers {
            let state = match breaker.state(now) {
                BreakerState::Closed => continue,
                BreakerState::Open => "open",
                BreakerState::HalfOpen => "half_open",
            };
            let labels = [backend.extension.as_str(), backend.host.as_str(), breaker.class.as_str(), state];
            self.breakers.with_label_values(&labels).set(1);
        }
        Ok(())
    }
}

fn three_digits(status: u16, digits: &mut [u8; 3]) -> &str {
    for (place, divisor) in digits.iter_mut().zip([100, 10, 1]) {
        *place = b'0' + u8::try_from(status / divisor % 10).unwrap_or(0);
    }
    std::str::from_utf8(digits).unwrap_or("000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_absorbed_is_counted_once() {
        let metrics = Metrics::new().unwrap();
        let totals = |text: &str| BTreeMap::from([("ext.a".to_owned(), text.parse().unwrap())]);
        for (total, shown) in [("0", 0.0), ("0.25", 0.25), ("0.25", 0.25), ("1.5", 1.5)] {
            metrics.absorbed(&totals(total));
            assert_eq!(metrics.absorbed.with_label_values(&["ext.a"]).get(), shown);
        }
    }
}
