//! What `/metrics` tells: requests, their times, creates, execs, and what the store holds now.

use std::time::Duration;

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use sandboxer_core::{Error, ErrorKind, Result, State};
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
        for sink in engine.sink_names() {
            let pending = engine.store().outbox_stats(sink).await?.pending;
            self.outbox.with_label_values(&[sink]).set(i64::try_from(pending).unwrap_or(i64::MAX));
        }
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).map_err(|source| {
            Error::new(ErrorKind::Internal, "the metrics cannot be written").with_source(source)
        })?;
        Ok(text)
    }
}

fn three_digits(status: u16, digits: &mut [u8; 3]) -> &str {
    for (place, divisor) in digits.iter_mut().zip([100, 10, 1]) {
        *place = b'0' + u8::try_from(status / divisor % 10).unwrap_or(0);
    }
    std::str::from_utf8(digits).unwrap_or("000")
}
