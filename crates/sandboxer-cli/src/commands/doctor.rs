//! `doctor`: what this machine, or the server, can do, and what to do about the rest.

use std::path::Path;

use sandboxer_core::extension::CheckItem;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_engine::{ExtensionView, FIN_HUB_SINK, STATE_HUB_SINK};
use serde::Serialize;

use super::extensions::{outcome, with_hint};
use crate::api::Api as _;
use crate::compose::{self, Role, Settings};
use crate::embedded::Embedded;
use crate::printer::{Printer, Tone};
use crate::status::{ExitStatus, Outcome};
use crate::table::Rows;

#[derive(Serialize)]
struct Report {
    /// A sandbox can be created.
    ok: bool,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    /// `home`, `store`, `server`, or the extension.
    about: String,
    #[serde(flatten)]
    item: CheckItem,
}

pub(super) async fn run(settings: &Settings, printer: &Printer) -> Outcome {
    let report = match &settings.server {
        Some(url) => of_server(settings, url).await,
        None => of_machine(settings).await,
    };
    let status = if report.ok { ExitStatus::SUCCESS } else { ExitStatus::of(ErrorKind::NoBackend) };
    if printer.is_json() {
        printer.document(&report)?;
        return Ok(status);
    }
    let mut rows = Rows::new(["ABOUT", "CHECK", "OUTCOME", "DETAIL"]);
    for check in &report.checks {
        rows.row([
            check.about.clone(),
            check.item.name.clone(),
            outcome(&check.item).into(),
            with_hint(&check.item),
        ]);
    }
    rows.print(printer)?;
    printer.line("")?;
    printer.line(&match report.ok {
        true => printer.tone(Tone::Good, "sandboxes can be created here"),
        false => printer.tone(Tone::Bad, "no sandbox can be created here"),
    })?;
    Ok(status)
}

async fn of_server(settings: &Settings, url: &str) -> Report {
    let asked = async { compose::api(settings).await?.extensions().await };
    match asked.await {
        Err(error) => Report { ok: false, checks: vec![Check::failed("server", "reachable", &error)] },
        Ok(views) => {
            let mut checks = vec![Check::fine("server", "reachable", url)];
            let ok = add_extensions(&mut checks, views);
            Report { ok, checks }
        }
    }
}

async fn of_machine(settings: &Settings) -> Report {
    let mut checks = Vec::new();
    let engine = match compose::engine(settings, Role::Deliverer).await {
        Ok(engine) => engine,
        Err(error) => {
            checks.push(Check::failed("store", "opens", &error));
            return Report { ok: false, checks };
        }
    };
    let home = settings.home.display().to_string();
    let writable = check_writable(&settings.home);
    checks.push(match &writable {
        Ok(()) => Check::fine("home", "writable", &home),
        Err(error) => Check::failed("home", "writable", error),
    });
    let store = engine.store().ping().await;
    checks.push(match &store {
        Ok(()) => Check::fine("store", "answers", "the store is open"),
        Err(error) => Check::failed("store", "answers", error),
    });
    for problem in engine.catalog().problems() {
        let mut check = Check::failed("profiles", "readable", &problem.error);
        check.item.required = false;
        checks.push(check);
    }
    checks.extend(prices(&engine));
    checks.extend(strangers(settings, &engine));
    let hubs = [
        ("state hub", STATE_HUB_SINK, &settings.state_hub_url),
        ("billing hub", FIN_HUB_SINK, &settings.fin_hub_url),
    ];
    for (name, sink, url) in hubs {
        match url {
            Some(url) => checks.push(hub(&engine, name, sink, url).await),
            None => checks.extend(unknown_hub(&engine, name, sink).await),
        }
    }
    let views = Embedded::new(engine, false).extensions().await.unwrap_or_default();
    let usable = add_extensions(&mut checks, views);
    Report { ok: usable && writable.is_ok() && store.is_ok(), checks }
}

/// What is wrong with price files, and which are for nobody here.
fn prices(engine: &sandboxer_engine::Engine) -> Vec<Check> {
    let problems = engine.prices().problems();
    let failed = problems.iter().map(|problem| Check::failed("prices", "readable", problem));
    let strangers = engine.prices().strangers(|id| engine.registry().ids().any(|known| known == id));
    let noted = strangers.into_iter().map(|(file, id)| {
        Check::fine("prices", "used", &format!("note: {file} is for {id}, which is not registered here"))
    });
    let mut checks: Vec<Check> = failed.chain(noted).collect();
    for check in &mut checks {
        check.item.required = false;
    }
    checks
}

/// Extensions that the configuration names and that are not here.
fn strangers(settings: &Settings, engine: &sandboxer_engine::Engine) -> Vec<Check> {
    let routed = settings.route.extensions().map(|(key, id)| (format!("route.{key}"), id));
    let limited = settings.extension_limits.keys().map(|id| ("extensions".to_owned(), id.as_str()));
    let absent = |(key, id): (String, &str)| {
        let error = engine.registry().get(id).err()?;
        let mut check = Check::failed("configuration", &key, &error);
        check.item.required = false;
        Some(check)
    };
    routed.chain(limited).filter_map(absent).collect()
}

/// How many events wait for the hub, and what it said last.
async fn hub(engine: &sandboxer_engine::Engine, name: &str, sink: &str, url: &str) -> Check {
    let stats = match engine.store().outbox_stats(sink).await {
        Ok(stats) => stats,
        Err(error) => return Check::failed(name, "delivery", &error),
    };
    // Not all of it: what is shown here is pasted into reports, and a URL may carry a secret.
    let place = url.parse::<reqwest::Url>().ok();
    let place = place.and_then(|url| Some(format!("{}://{}", url.scheme(), url.host_str()?)));
    let place = place.unwrap_or_else(|| "the hub".to_owned());
    let mut check = Check::fine(name, "delivery", &format!("{} events wait for {place}", stats.pending));
    if let Some(error) = stats.last_error.filter(|_| stats.pending > 0) {
        check.item.ok = false;
        check.item.detail.push_str(&format!("; {error}"));
    }
    check.item.required = false;
    check
}

/// A hub that events are queued for, while this process could not deliver them.
async fn unknown_hub(engine: &sandboxer_engine::Engine, name: &str, sink: &str) -> Option<Check> {
    let stats = engine.sink_stats().await.ok()?.into_iter().find(|stats| stats.sink == sink)?;
    let detail = format!(
        "{} events wait and {} were given up for a hub whose URL this process was not told; others must deliver them",
        stats.pending, stats.dead
    );
    let mut check = Check::fine(name, "known", &detail);
    (check.item.ok, check.item.required) = (false, false);
    let key = sink.replace('-', "_");
    check.item.hint = Some(format!(
        "set `{key}_url` in config.toml, or `sandboxer events forget {sink}` when the hub is no more"
    ));
    Some(check)
}

/// Whether any of them can be used.
fn add_extensions(checks: &mut Vec<Check>, views: Vec<ExtensionView>) -> bool {
    let usable = views.iter().any(|view| view.check.ok && view.price_problem.is_none());
    for view in views {
        let about = view.description.id;
        checks.extend(view.check.items.into_iter().map(|item| Check { about: about.clone(), item }));
        if let Some(why) = view.price_problem {
            let mut check = Check::fine(&about, "price", &why);
            check.item.ok = false;
            checks.push(check);
        }
    }
    usable
}

/// By writing: permissions do not tell about read-only mounts and full disks.
fn check_writable(home: &Path) -> Result<()> {
    tempfile::Builder::new().prefix(".doctor").tempfile_in(home).map(drop).map_err(|source| {
        Error::new(ErrorKind::StoreFailed, format!("{} cannot be written to", home.display()))
            .with_source(source)
            .with_hint("set SANDBOXER_HOME to a folder that you can write to")
    })
}

impl Check {
    fn fine(about: &str, name: &str, detail: &str) -> Self {
        let item =
            CheckItem { name: name.into(), ok: true, required: true, detail: detail.into(), hint: None };
        Self { about: about.into(), item }
    }

    fn failed(about: &str, name: &str, error: &Error) -> Self {
        let (detail, hint) = (error.chain().join(": "), error.hint().map(str::to_owned));
        Self {
            about: about.into(),
            item: CheckItem { name: name.into(), ok: false, required: true, detail, hint },
        }
    }
}
