//! The socket itself: who gets in, what is replaced, what never is.
use super::*;

fn refused(path: &std::path::Path) -> String {
    let fault = Listener::bind(path).expect_err("refused");
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    fault.chain()
}

#[tokio::test]
async fn the_socket_has_mode_0660_and_goes_with_its_listener() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.sock");
    let listener = Listener::bind(&path).unwrap();
    let meta = fs::symlink_metadata(&path).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o660);
    assert_eq!(meta.gid(), nix::unistd::getegid().as_raw());
    drop(listener);
    assert!(fs::symlink_metadata(&path).is_err());
}

#[tokio::test]
async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.sock");
    let other = StdListener::bind(&path).unwrap();
    assert!(refused(&path).contains("another node serves there"));
    drop(other);
    assert!(path.exists(), "a process that dies leaves its socket");
    let listener = Listener::bind(&path).unwrap();
    // What was replaced meanwhile is not removed with the old listener.
    fs::remove_file(&path).unwrap();
    let _new = StdListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
}

#[tokio::test]
async fn a_live_socket_whose_backlog_is_full_is_not_taken_for_a_dead_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.sock");
    let other = tokio::net::UnixSocket::new_stream().unwrap();
    other.bind(&path).unwrap();
    let other = other.listen(1).unwrap();
    let mut waiting = Vec::new();
    let full = loop {
        let connecting = timeout(Duration::from_millis(100), tokio::net::UnixStream::connect(&path)).await;
        match connecting {
            Ok(Ok(stream)) => waiting.push(stream),
            Ok(Err(error)) => break error.kind() == std::io::ErrorKind::WouldBlock,
            Err(_) => break true,
        }
        assert!(waiting.len() < 64, "the backlog never fills");
    };
    assert!(full);
    assert!(refused(&path).contains("another node serves there"));
    drop(other);
}

#[tokio::test]
async fn foreign_objects_in_the_sockets_place_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.sock");
    fs::write(&path, "precious").unwrap();
    assert!(refused(&path).contains("no socket of uid"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    fs::remove_file(&path).unwrap();

    // A link, even to a dead socket of ours.
    let dead = dir.path().join("dead.sock");
    drop(StdListener::bind(&dead).unwrap());
    std::os::unix::fs::symlink(&dead, &path).unwrap();
    refused(&path);
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink() && dead.exists());
    fs::remove_file(&path).unwrap();

    fs::create_dir(&path).unwrap();
    refused(&path);
    assert!(path.is_dir());
}

#[tokio::test]
async fn a_directory_that_others_may_write_or_that_is_a_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    for mode in [0o1777, 0o702, 0o720, 0o1770] {
        fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        let told = format!("has mode {mode:04o}: others may write there: chmod go-w it");
        assert!(refused(&open.join("node.sock")).contains(&told), "{mode:o}");
    }
    let real = dir.path().join("real");
    fs::create_dir(&real).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    assert!(refused(&link.join("node.sock")).contains("not a directory"));
}

#[tokio::test]
async fn a_missing_directory_is_told_with_the_commands_that_make_it() {
    let dir = tempfile::tempdir().unwrap();
    let commands = |told: &str| told.split_once(": as root, ").map(|(_, commands)| commands.to_owned());
    let missing = dir.path().join("node");
    let told = refused(&missing.join("node.sock"));
    assert!(told.contains(&format!("there is no directory {}", missing.display())), "{told}");
    let one = commands(&told).expect("a remedy");
    assert!(one.starts_with("install -d -o ") && one.ends_with(&format!(" -m 0710 {}", missing.display())), "{told}");
    assert!(!one.contains("&&"), "{told}");

    let above = dir.path().join("run");
    let path = above.join("node/node.sock");
    let told = refused(&path);
    let both = commands(&told).expect("a remedy");
    assert!(both.contains(&format!(" -m 0750 {} && ", above.display())), "the one above comes first: {told}");
    if nix::unistd::geteuid().is_root() {
        let done = std::process::Command::new("sh").args(["-c", &both]).status().unwrap();
        assert!(done.success());
        Listener::bind(&path).expect("what the remedy makes is what is wanted");
        let mode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&above), mode(&above.join("node"))), (0o750, 0o710));
    }
}

#[tokio::test]
async fn a_caller_that_is_not_admitted_is_hung_up_on_before_it_is_read() {
    let served = serve();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.sock");
    let listener = Listener::bind(&path).unwrap();
    let api = Api::new(Arc::clone(&served.node) as Arc<dyn NodeService>);
    // As a node of another user sees this test, unless it is root, whom every node admits.
    let stranger = Admission { uid: 4_000_000_001, gid: 4_000_000_002 };
    let serving = tokio::spawn(listener.serve(api, stranger));
    let answer = Client::new(&path).status().await;
    if nix::unistd::geteuid().is_root() {
        assert_eq!(answer.unwrap(), status());
    } else {
        assert!(matches!(answer, Err(ClientError::Closed { .. })), "{answer:?}");
    }
    serving.abort();
}

#[tokio::test]
async fn as_root_another_user_is_hung_up_on_and_a_member_of_the_group_is_served() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let served = serve();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("node.sock");
    let listener = Listener::bind(&path).unwrap();
    // The mode is opened, so that the check of the caller is all there is.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let api = Api::new(Arc::clone(&served.node) as Arc<dyn NodeService>);
    let node = Admission { uid: 4_000_000_001, gid: 4_000_000_002 };
    let serving = tokio::spawn(listener.serve(api, node));
    let ask = |uid: u32, gid: u32| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || ask_as(&path, uid, gid))
    };
    assert!(ask(4_000_000_001, 4_000_000_003).await.unwrap().contains("200 OK"), "the node's own user");
    assert!(ask(4_000_000_009, 4_000_000_002).await.unwrap().contains("200 OK"), "its group");
    assert_eq!(ask(4_000_000_009, 4_000_000_009).await.unwrap(), "", "nobody else");
    serving.abort();
}

/// Sends a request as another user, by a child process that gives itself up.
fn ask_as(path: &std::path::Path, uid: u32, gid: u32) -> String {
    let script = "import os, socket, sys\n\
                  os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))\n\
                  s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[3])\n\
                  try:\n\
                  \x20s.sendall(b'GET /v1/healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n\
                  \x20while True:\n\
                  \x20\x20b = s.recv(4096)\n\
                  \x20\x20if not b: break\n\
                  \x20\x20sys.stdout.write(b.decode())\n\
                  except (ConnectionResetError, BrokenPipeError): pass\n";
    let output = std::process::Command::new("python3")
        .args(["-c", script, &uid.to_string(), &gid.to_string(), path.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
