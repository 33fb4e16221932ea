//! Every path: one file for each group of actions, with its annotation and its authorization.

mod archive;
mod catalog;
mod credits;
mod docs;
mod events;
mod execs;
mod files;
mod health;
mod hosts;
mod index;
mod inspect;
mod keys;
mod logs;
mod meters;
mod ports;
mod replay;
mod sandboxes;
mod snapshots;
mod stale;
mod upload;
mod webhooks;

use axum::Router;
use axum::middleware::from_fn_with_state;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::edge;
use crate::openapi::Base;

/// The routes and their description, which are the same list.
pub(crate) fn described() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Base::openapi())
        .routes(routes!(index::index))
        .routes(routes!(docs::guide))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(health::openapi_document))
        .routes(routes!(sandboxes::list::list_sandboxes, sandboxes::create::create_sandbox))
        .routes(routes!(sandboxes::one::get_sandbox, sandboxes::one::destroy_sandbox))
        .routes(routes!(sandboxes::create::recreate_sandbox))
        .routes(routes!(sandboxes::ttl::extend_sandbox))
        .routes(routes!(sandboxes::sync::sync_sandbox))
        .routes(routes!(sandboxes::ttl::expire_sandboxes))
        .routes(routes!(sandboxes::pause::pause_sandbox))
        .routes(routes!(sandboxes::pause::resume_sandbox))
        .routes(routes!(sandboxes::fork::fork_sandbox))
        .routes(routes!(snapshots::take_snapshot))
        .routes(routes!(snapshots::list_snapshots))
        .routes(routes!(snapshots::get_snapshot, snapshots::delete_snapshot))
        .routes(routes!(snapshots::restore_snapshot))
        .routes(routes!(logs::backend_logs))
        .routes(routes!(ports::tunnel::port_tunnel))
        .routes(routes!(ports::proxy::proxy))
        .routes(routes!(events::sandbox_events))
        .routes(routes!(events::all_events))
        .routes(routes!(replay::dead_letters))
        .routes(routes!(replay::replay_events))
        .routes(routes!(replay::sinks))
        .routes(routes!(replay::forget_sink))
        .routes(routes!(webhooks::list_webhooks, webhooks::add_webhook))
        .routes(routes!(webhooks::get_webhook, webhooks::remove_webhook))
        .routes(routes!(webhooks::rotate_webhook))
        .routes(routes!(webhooks::enable_webhook))
        .routes(routes!(webhooks::disable_webhook))
        .routes(routes!(webhooks::test_webhook))
        .routes(routes!(execs::query::list_execs, execs::run::run_exec))
        .routes(routes!(execs::websocket::exec_websocket))
        .routes(routes!(execs::query::get_exec))
        .routes(routes!(execs::logs::exec_stream))
        .routes(routes!(execs::input::exec_stdin))
        .routes(routes!(execs::input::exec_signal))
        .routes(routes!(files::read_file, files::head_file, files::write_file, files::delete_file))
        .routes(routes!(files::list_files))
        .routes(routes!(files::stat_file))
        .routes(routes!(files::move_file))
        .routes(routes!(archive::get_archive, archive::put_archive))
        .routes(routes!(catalog::list_profiles))
        .routes(routes!(catalog::get_profile))
        .routes(routes!(catalog::list_extensions))
        .routes(routes!(catalog::get_extension))
        .routes(routes!(catalog::explain_route))
        .routes(routes!(catalog::estimate))
        .routes(routes!(hosts::list_hosts, hosts::add_host))
        .routes(routes!(hosts::remove_host))
        .routes(routes!(hosts::check_host))
        .routes(routes!(inspect::inspect_host))
        .routes(routes!(stale::inspect_stale))
        .routes(routes!(stale::reap_stale))
        .routes(routes!(inspect::inspect_sandbox))
        .routes(routes!(credits::accounts::show_credits, credits::accounts::add_credits))
        .routes(routes!(credits::accounts::limit_account))
        .routes(routes!(credits::entries::list_entries))
        .routes(routes!(credits::entries::get_statement))
        .routes(routes!(credits::budgets::set_budget, credits::budgets::remove_budget))
        .routes(routes!(credits::audit::audit_books))
        .routes(routes!(credits::audit::reconcile))
        .routes(routes!(
            credits::provider_keys::list_provider_keys,
            credits::provider_keys::set_provider_key,
            credits::provider_keys::remove_provider_key
        ))
        .routes(routes!(meters::list_meters))
        .routes(routes!(keys::list_keys, keys::create_key))
        .routes(routes!(keys::revoke_key))
}

/// The whole service. Without [`crate::Peer`] in a request's extensions only keys get in.
pub fn router(app: App) -> Router {
    let (router, _) = described().split_for_parts();
    // Every method and path below a port is the sandbox's own.
    router
        .route("/v1/sandboxes/{id}/ports/{port}/", axum::routing::any(ports::proxy::proxy))
        .route("/v1/sandboxes/{id}/ports/{port}/{*path}", axum::routing::any(ports::proxy::proxy))
        .route("/docs/{folder}/{page}", axum::routing::get(docs::guide_in_folder))
        .fallback(edge::no_such_route)
        .method_not_allowed_fallback(edge::no_such_method)
        .layer(from_fn_with_state(app.clone(), edge::edge))
        .with_state(app)
}
