//! libvirt as the host's administrator sees it: to make foreign domains, and to look.
//!
//! Room: `tests`.
use std::time::{Duration, Instant};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::sys;

/// Where the real libvirtd is.
pub const URI: &str = "qemu:///system";

/// The administrator's connection.
///
/// # Panics
/// When libvirtd does not answer.
#[must_use]
pub fn connect() -> Connect {
    virt::error::clear_error_callback();
    // A libvirtd that crashed is started again within a second or two by whatever keeps it up.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match Connect::open(Some(URI)) {
            Ok(connection) => return connection,
            Err(why) if Instant::now() < end => {
                eprintln!("libvirtd does not answer yet: {why}");
                std::thread::sleep(Duration::from_millis(500));
            }
            Err(why) => panic!("libvirtd answers at {URI} (run tests/run real): {why}"),
        }
    }
}

/// A domain that bcd did not create; undefined when dropped.
#[derive(Debug)]
pub struct Foreign {
    domain: Domain,
}

impl Foreign {
    /// Defines one with this name and, if given, this UUID. It has no disk.
    ///
    /// # Panics
    /// When libvirt refuses.
    #[must_use]
    pub fn define(connection: &Connect, name: &str, uuid: Option<&str>) -> Self {
        let uuid = uuid.map(|uuid| format!("<uuid>{uuid}</uuid>")).unwrap_or_default();
        let process = std::process::id();
        // By this `tests/leftovers` knows one whose test was killed.
        let xml = format!(
            "<domain type='qemu'><name>{name}</name>{uuid}<description>a test of bcd, process {process}</description><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64' machine='q35'>hvm</type></os>\
             <devices><serial type='pty'/><memballoon model='none'/></devices></domain>"
        );
        Self { domain: connection.define_domain_xml(&xml).expect("define a foreign domain") }
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Its inactive XML, to see that nothing touched it.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn xml(&self) -> String {
        self.domain.xml_desc(sys::VIR_DOMAIN_XML_INACTIVE).expect("the foreign domain is there")
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.domain.destroy();
        let _ = self.domain.undefine();
    }
}

/// Removes whatever domain of these instances a failed test left. Dropped last.
#[derive(Debug)]
pub struct Cleaner {
    /// Instance ids.
    pub instances: Vec<String>,
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        virt::error::clear_error_callback();
        let Ok(connection) = Connect::open(Some(URI)) else { return };
        for id in &self.instances {
            if let Ok(domain) = connection.lookup_domain_by_name(&format!("bcd-{id}")) {
                let _ = domain.destroy();
                let _ = domain.undefine();
            }
        }
    }
}

/// The pid of the QEMU process of an instance's domain, from its command line.
#[must_use]
pub fn qemu_pid(instance: &str) -> Option<i32> {
    let wanted = format!("guest=bcd-{instance},");
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let text = String::from_utf8_lossy(&line);
        (text.contains("qemu-system") && text.contains(&wanted)).then_some(pid)
    })
}
