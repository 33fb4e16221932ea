#![allow(warnings)]
#[path = "../tests/http/support/mod.rs"]
mod support;
use support::Server; use std::time::Instant; use serde_json::json;
#[tokio::main]
async fn main(){ zz_latency().await }

async fn zz_latency() {
    use sandboxer_core::{ExecId, request::ExecRequest, exec::Command};
    let server = Server::start().await;
    let id = server.create().await;
    let sid = id.parse().unwrap();
    let mut http = Vec::new();
    let mut direct = Vec::new();
    let mut get = Vec::new();
    for _ in 0..300 {
        let t = Instant::now();
        server.exec(&id, json!({ "command": ["/bin/true"] })).await;
        http.push(t.elapsed());
        let t = Instant::now();
        let spec = ExecRequest::new(Command::Args(vec!["/bin/true".into()])).to_spec(ExecId::generate(), false).unwrap();
        let s = server.engine.exec(&sandboxer_engine::Caller::local_admin(), sid, spec).await.unwrap();
        s.control.wait().await.unwrap();
        direct.push(t.elapsed());
        let t = Instant::now();
        server.get(&format!("/v1/hosts")).send().await.unwrap().bytes().await.unwrap();
        get.push(t.elapsed());
    }
    for v in [&mut http, &mut direct, &mut get] { v.sort(); println!("p50 {:?} p95 {:?}", v[150], v[285]); }
}
