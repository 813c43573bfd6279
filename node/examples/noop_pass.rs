//! Measures a converge pass that finds nothing to do, and bare bulk calls on the same connection, by turns.
//!
//! `noop_pass CONFIG SPEC`: with a running helper and libvirtd, whose domains are as the document SPEC wants them.
//! Prints `{"domains", "steps", "pass_us": […], "bulk_us": […]}`. A pass is what the node does when its timer wakes it:
//! list the domains, compare the records' generation, and plan anew if either says anything new. `steps` is counted in a
//! plan of what the last pass saw.
use bcd_node::helper::Helper;
use bcd_node::layout::Layout;
use bcd_node::observe::{Observer, fetch, scan};
use bcd_node::plan::{Desired, Plan, plan};
use bcd_node::runtime::Runtime;
use bcd_node::runtime::libvirt_kvm::LibvirtKvm;
use bcd_node::spec;
use bcd_protocol::config::Config;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 40;
const WARM_UP: usize = 5;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(config), Some(document)) = (arguments.next(), arguments.next()) else {
        return Err("usage: noop_pass CONFIG SPEC".into());
    };
    let config = Config::parse(&std::fs::read_to_string(config)?)?;
    let desired = Desired::of(Arc::new(spec::parse(&document, &std::fs::read_to_string(&document)?)?));
    let helper = Helper::connect(config.helper.socket.as_path(), 0);
    helper.wait_until_up(PATIENCE).await?;
    let libvirt = Arc::new(LibvirtKvm::start(&config.libvirt.uri)?);
    let mut reach = libvirt.reach();
    tokio::time::timeout(PATIENCE, reach.wait_for(|r| *r == bcd_node::runtime::Reach::Up)).await??;
    let runtime: Arc<dyn Runtime> = Arc::<LibvirtKvm>::clone(&libvirt);

    let mut observer = Observer::new(scan(&Layout::new(config.data_dir.as_path())));
    observer.absorb(fetch(helper.clone(), Arc::clone(&runtime), None).await);
    // A node that has been up for a while has shared every instance's files.
    let shared: Vec<_> = observer.records().values().map(|r| (r.instance.clone(), r.uid)).collect();
    for (id, uid) in shared {
        let files = observer.files(&id).map(|files| bcd_node::plan::InstanceFiles { shared: Some(uid), ..files });
        observer.set_files(&id, files);
    }
    let (mut pass_us, mut bulk_us) = (Vec::new(), Vec::new());
    let mut domains = 0;
    let mut kept = plan(&desired, &observer.observed());
    for round in 0..ROUNDS + WARM_UP {
        let taken = pass(&mut observer, &mut kept, &helper, &runtime, &desired).await;
        let (bulk, count) = libvirt.time_bulk_call().await?;
        domains = count;
        if round >= WARM_UP {
            pass_us.push(micros(taken));
            bulk_us.push(micros(bulk));
        }
    }
    let planned = plan(&desired, &observer.observed());
    let steps: usize = planned.changes.iter().map(|change| change.steps.len()).sum();
    let report = serde_json::json!({"domains": domains, "steps": steps, "pass_us": pass_us, "bulk_us": bulk_us});
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}

/// One pass, and how long it took.
async fn pass(
    observer: &mut Observer,
    kept: &mut Plan,
    helper: &Helper,
    runtime: &Arc<dyn Runtime>,
    desired: &Desired,
) -> Duration {
    let began = Instant::now();
    let fetched = fetch(helper.clone(), Arc::clone(runtime), observer.generation()).await;
    if observer.absorb(fetched).any {
        *kept = plan(desired, &observer.observed());
    }
    began.elapsed()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
