#![allow(clippy::unwrap_used, reason = "x")]
mod common;
use common::*;
#[tokio::test(flavor = "multi_thread")]
async fn scratch() {
    let state = shared_state();
    let ext = extension(&state);
    let heard = Heard::default();
    let mut wish = request(spec());
    wish.progress = heard.progress();
    let _cleanup = Cleanup { extension: ext.clone(), tag: wish.tag.clone() };
    let s = std::time::Instant::now();
    let handle = ext.provision(wish.clone()).await.unwrap();
    eprintln!("provision {:?}", s.elapsed());
    ext.wait_ready(&handle).await.unwrap();
    eprintln!("ready {:?}", s.elapsed());
    eprintln!("{:#?}", handle.controls);
    for script in ["echo hi", "uname -r; pwd; id; df -h /; mount; free -m", "false", "busybox nc -w 2 10.0.2.2 22 </dev/null", "sleep 1; ps aux | head -30", "echo x >&2; exit 3"] {
        let s = std::time::Instant::now();
        let r = tokio::spawn({ let (ext, handle) = (ext.clone(), handle.clone()); async move { sh(&ext, &handle, script).await } }).await;
        eprintln!("{script}: {:?} {:?}", r.map_err(|e| e.to_string()), s.elapsed());
    }
    let s = std::time::Instant::now();
    ext.teardown("local", &handle.tag, None).await.unwrap();
    eprintln!("teardown {:?}", s.elapsed());
}
