//! Profiles of many machines in one place: what agents pull from `neap serve`, and what it pushes.

use crate::engine::{Engine, escaped, free_port, skipped};
use crate::profile::{Planted, tool};
use crate::serve::Server;
use crate::stage::{neap, printed, room};
use prost::Message;
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A sample every 4 KiB: the estimates are within a few percent of the truth.
const OFTEN: Option<&str> = Some("4096");

#[test]
fn agents_find_the_processes_that_sample() {
    let (sampling, silent) = (Planted::start(&[], OFTEN), Planted::start(&[], None));
    let server = Server::start(&[&sampling.pid(), &silent.pid()]);
    let (head, body) = server.get("/targets");
    assert!(head.contains("content-type: application/json"), "{head}");
    let targets: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(targets.as_array().unwrap().len(), 1, "{body}");
    assert_eq!(targets[0]["targets"], serde_json::json!([server.address]));
    let labels = &targets[0]["labels"];
    for name in ["__param_pid", "pid"] {
        assert_eq!(labels[name], sampling.pid(), "{body}");
    }
    assert_eq!(labels["service_name"], "planted", "{body}");
    let names = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    let unknown = names(labels).into_iter().find(|name| {
        let known = [
            "__param_pid",
            "pid",
            "program",
            "service_name",
            "pod_uid",
            "container_id",
            "unit",
        ];
        !known.contains(&name.as_str())
    });
    assert_eq!(unknown, None, "{body}");
}

#[test]
fn profiles_are_served_as_go_s_programs_do() {
    let planted = Planted::start(&[], OFTEN);
    let server = Server::start(&[&planted.pid()]);
    let (_, page) = server.get("/debug/pprof/");
    assert!(page.contains("/debug/pprof/heap?pid="), "{page}");
    for path in ["heap?program=nobody", "allocs?program=plante"] {
        let (head, body) = server.get(&format!("/debug/pprof/{path}"));
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
        assert!(body.contains("there is no process"), "{body}");
    }
    let (head, body) = server.get("/debug/pprof/heap?seconds=1&debug=1");
    assert!(head.starts_with("HTTP/1.1 400"), "{head}: {body}");
    let (head, text) = server.get("/debug/pprof/heap?debug=1");
    assert!(head.contains("content-type: text/plain"), "{head}");
    assert!(
        text.contains("\n1: 104857600 [1: 104857600] @ 0x"),
        "{text}"
    );
    assert!(text.contains("\tdownload\t"), "{text}");
    if tool("pprof").is_none() {
        return;
    }
    let pprof = |path: &str, argument: &str| {
        let file = planted.file("served");
        fs::write(&file, server.get_bytes(path)).unwrap();
        let mut pprof = tool("pprof").unwrap();
        printed(
            pprof
                .env("PPROF_TMPDIR", planted.file(""))
                .arg(argument)
                .arg(&file),
        )
    };
    let text = pprof("/debug/pprof/heap?debug=1&gc=1", "-raw");
    assert!(
        text.contains("inuse_space/bytes") && text.contains("104857600"),
        "{text}"
    );
    for (path, shown) in [
        ("heap", "inuse_space/bytes[dflt]"),
        ("allocs", "alloc_space/bytes[dflt]"),
    ] {
        let raw = pprof(&format!("/debug/pprof/{path}?program=planted"), "-raw");
        assert!(raw.contains(shown), "{raw}");
        let pid = format!("pid:[{}]", planted.pid());
        assert!(
            raw.contains(&pid) && raw.contains("program:[planted]"),
            "{raw}"
        );
        // To an agent that subtracts two profiles, a sample with another mean size would be new.
        assert!(!raw.contains("bytes:["), "{raw}");
        // Parca would treat a profile with a duration as the difference of two profiles.
        assert!(!raw.contains("Duration:"), "{raw}");
    }
}

/// A control group of this name, removed when this value is dropped.
struct Group(PathBuf);

impl Group {
    /// `None` if this user may make none.
    fn make(name: &str) -> Option<Group> {
        let places = [
            "/sys/fs/cgroup/systemd",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup",
        ];
        places.iter().find_map(|place| {
            let group = Group(PathBuf::from(place).join(name));
            let made = fs::create_dir_all(&group.0).is_ok();
            (made && group.0.join("cgroup.procs").exists()).then_some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel refuses to remove those that other processes use.
        for group in self.0.ancestors() {
            if fs::remove_dir(group).is_err() {
                break;
            }
        }
    }
}

#[test]
fn metrics_and_profiles_name_the_pod_and_the_container() {
    let own = std::process::id();
    let pod = format!("74c13223-5a00-11e9-b385-{own:012x}");
    let container = format!("{own:064x}");
    let Some(group) = Group::make(&format!("kubepods/burstable/pod{pod}/{container}")) else {
        return skipped("this user may make no control group");
    };
    let planted = Planted::start(&[], OFTEN);
    fs::write(group.0.join("cgroup.procs"), planted.pid()).unwrap();
    let server = Server::start(&[&planted.pid()]);
    let (_, metrics) = server.get("/metrics");
    let labels = format!("program=\"planted\",pod_uid=\"{pod}\",container_id=\"{container}\"");
    let labels = format!("\nneap_fresh{{pid=\"{}\",{labels}}} ", planted.pid());
    assert!(metrics.contains(&labels), "{metrics}");
    let (_, targets) = server.get("/targets");
    assert!(
        targets.contains(&format!("\"pod_uid\":\"{pod}\"")),
        "{targets}"
    );
    if let Some(mut pprof) = tool("pprof") {
        let file = planted.file("served");
        fs::write(&file, server.get_bytes("/debug/pprof/heap")).unwrap();
        let raw = printed(
            pprof
                .env("PPROF_TMPDIR", planted.file(""))
                .arg("-raw")
                .arg(&file),
        );
        assert!(raw.contains(&format!("pod_uid:[{pod}]")), "{raw}");
        assert!(
            raw.contains(&format!("container_id:[{container}]")),
            "{raw}"
        );
    }
    drop((server, planted));
}

/// How long to wait for a request.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that takes profiles, one by one, with an answer of the test's choice.
struct Taker(TcpListener);

impl Taker {
    fn start() -> Taker {
        Taker(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// The head and the body of the next request.
    fn take(&self, status: &str) -> (String, Vec<u8>) {
        self.0.set_nonblocking(true).unwrap();
        let since = Instant::now();
        let mut stream = loop {
            match self.0.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            assert!(since.elapsed() < PATIENCE, "neap pushes nothing");
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            let count = stream.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{}", String::from_utf8_lossy(&request));
            request.extend(&bytes[..count]);
            let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8(request[..end].to_vec())
                .unwrap()
                .to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if request.len() == end + 4 + length {
                let why = "why it is so\nand more";
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{why}",
                    why.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
                return (head, request.split_off(end + 4));
            }
        }
    }
}

/// The lines of a pushed profile, by one of its values.
fn collapsed(planted: &Planted, body: &[u8], value: &str) -> String {
    let file = planted.file("pushed.pb.gz");
    fs::write(&file, body).unwrap();
    let mut profile = neap();
    let profile = profile.arg("profile").arg(&file).arg("--format=collapsed");
    printed(profile.args(["--value", value]))
}

#[test]
fn pushed_profiles_have_what_was_allocated_since_the_last_and_all_that_is_live() {
    let planted = Planted::start(&[], OFTEN);
    let taker = Taker::start();
    let url = taker.url().replace("http://", "http://me:secret@");
    let server = Server::start(&["--push", &url, "--interval=1s", &planted.pid()]);
    let collapsed = |body: &[u8], value: &str| collapsed(&planted, body, value);
    // The second attempt has the same profile; a failure that passes loses nothing.
    let (_, first) = taker.take("503 Service Unavailable");
    let (head, again) = taker.take("200 OK");
    assert_eq!(first, again);
    assert!(
        head.starts_with("post /ingest?name=planted&from="),
        "{head}"
    );
    assert!(
        head.contains("&format=pprof&spyname=neap http/1.1"),
        "{head}"
    );
    assert!(
        head.contains("\r\nauthorization: basic bwu6c2vjcmv0"),
        "{head}"
    );
    let times: Vec<u64> = ["from=", "until="]
        .map(|name| head.split(name).nth(1).unwrap().split('&').next().unwrap())
        .map(|time| time.parse().unwrap())
        .to_vec();
    assert!(
        times[0] <= times[1] && times[1].abs_diff(now()) < 600,
        "{head}"
    );
    let (_, second) = taker.take("200 OK");
    for body in [&first, &second] {
        assert!(collapsed(body, "live_space").contains(";download 104857600\n"));
        // It was allocated before neap looked for the first time.
        assert!(!collapsed(body, "alloc_space").contains("download"));
    }
    let allocated = collapsed(&second, "alloc_space");
    assert!(
        !allocated.is_empty() && allocated.lines().all(|line| line.contains("live ")),
        "{allocated}"
    );
    drop(server);
}

#[test]
fn a_profile_goes_to_the_server_whatever_the_environment_says_of_proxies() {
    let planted = Planted::start(&[], OFTEN);
    let taker = Taker::start();
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let mut neap = neap();
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        neap.env(name, &nowhere).env(name.to_lowercase(), &nowhere);
    }
    neap.env("NO_PROXY", "").env("no_proxy", "");
    let arguments = ["--push", &taker.url(), &planted.pid()];
    let server = Server::start_by(&mut neap, &arguments);
    taker.take("200 OK");
    drop(server);
}

#[test]
fn what_is_allocated_while_the_server_is_down_is_pushed_later() {
    let first = Planted::start_as("first", &["late"], OFTEN);
    let second = Planted::start_as("second", &["late"], OFTEN);
    let taker = Taker::start();
    let url = taker.url();
    let arguments = ["--push", &url, "--interval=1s", &first.pid(), &second.pid()];
    let server = Server::start(&arguments);
    // Three attempts, after which the round sends nothing more.
    for _ in 0..3 {
        let (head, _) = taker.take("503 Service Unavailable");
        assert!(head.starts_with("post /ingest?name=first&"), "{head}");
    }
    for (name, planted) in [("first", &first), ("second", &second)] {
        let (head, body) = taker.take("200 OK");
        let place = format!("post /ingest?name={name}&");
        assert!(head.starts_with(&place), "{head}");
        let allocated = collapsed(planted, &body, "alloc_space");
        assert!(allocated.contains(";leak "), "{name}: {allocated}");
    }
    drop(server);
}

#[test]
fn a_process_whose_profile_is_refused_keeps_no_other_from_the_server() {
    let refused = Planted::start_as("refused", &["late"], OFTEN);
    let taken = Planted::start_as("taken", &["late"], OFTEN);
    let taker = Taker::start();
    let url = taker.url();
    let arguments = [
        "--push",
        &url,
        "--interval=1s",
        &refused.pid(),
        &taken.pid(),
    ];
    let server = Server::start(&arguments);
    for answers in [["413 Too Large", "200 OK"], ["400 Bad Request", "200 OK"]] {
        for (name, answer) in ["refused", "taken"].iter().zip(answers) {
            let (head, _) = taker.take(answer);
            let place = format!("post /ingest?name={name}&");
            assert!(head.starts_with(&place), "{head}");
        }
    }
    let (_, body) = taker.take("400 Bad Request");
    // It has what the refused ones had.
    let allocated = collapsed(&refused, &body, "alloc_space");
    assert!(allocated.contains(";leak "), "{allocated}");
    let said = server.ended();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("413"), "{said}");
}

#[test]
fn a_server_that_takes_no_profiles_is_told_once() {
    let planted = Planted::start(&[], OFTEN);
    let taker = Taker::start();
    let url = taker.url().replace("http://", "http://me:secret@");
    let server = Server::start(&["--push", &url, "--interval=1s", &planted.pid()]);
    // A refusal is final: each of these is of another round.
    for _ in 0..3 {
        taker.take("400 Bad Request");
    }
    taker.take("200 OK");
    taker.take("200 OK");
    let said = server.ended();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    let why = "cannot push a profile to http://127.0.0.1:";
    assert!(
        lines[0].contains(why) && lines[0].contains(": 400 Bad Request: why it is so;"),
        "{said}"
    );
    assert!(lines[1].contains("takes profiles again"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn servers_that_neap_cannot_reach_are_refused_at_the_start() {
    for (url, why) in [
        ("https://a", "does not speak TLS"),
        ("a:4040", "http://HOST:PORT"),
    ] {
        let output = neap().args(["serve", "--push", url]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// Whether this is a run of ci/fleet.sh, which builds the servers below.
fn is_full() -> bool {
    let full = std::env::var_os("FLEET").is_some();
    if !full {
        skipped("ci/fleet.sh runs this with the real servers");
    }
    full
}

#[test]
fn pyroscope_shows_a_pushed_profile() {
    if !is_full() {
        return;
    }
    let room = room();
    let [http, grpc, gossip] = [free_port(), free_port(), free_port()];
    let configuration = format!(
        "server: {{http_listen_address: 127.0.0.1, http_listen_port: {http}, \
           grpc_listen_address: 127.0.0.1, grpc_listen_port: {grpc}}}\n\
         memberlist: {{bind_addr: [127.0.0.1], bind_port: {gossip}, advertise_addr: 127.0.0.1}}\n\
         pyroscopedb: {{data_path: data}}\n\
         storage: {{backend: filesystem, filesystem: {{dir: shared}}}}\n\
         analytics: {{reporting_enabled: false}}\n"
    );
    fs::write(room.path().join("pyroscope.yaml"), configuration).unwrap();
    let mut command = Command::new("pyroscope");
    command.args([
        "-config.file=pyroscope.yaml",
        "-self-profiling.disable-push=true",
    ]);
    command.arg("-ingester.min-ready-duration=0s");
    command.arg("-ingester.lifecycler.addr=127.0.0.1");
    for part in [
        "distributor.ring",
        "query-scheduler.ring",
        "query-frontend",
        "compactor.ring",
        "store-gateway.sharding-ring",
    ] {
        command.arg(format!("-{part}.instance-addr=127.0.0.1"));
    }
    // It registers handlers of /debug/pprof that newer versions of Go regard as conflicting.
    command.env("GODEBUG", "httpmuxgo121=1");
    let pyroscope = Engine::start(&mut command, room, format!("127.0.0.1:{http}"));
    let pyroscope = pyroscope.expect("pyroscope is not installed");
    let planted = Planted::start(&[], OFTEN);
    let url = format!("http://{}", pyroscope.address);
    let _server = Server::start(&["--push", &url, "--interval=1s", &planted.pid()]);
    let selector = format!("{{service_name=\"planted\",pid=\"{}\"}}", planted.pid());
    let names = |kind: &str| {
        let query = escaped(&format!("memory:{kind}:bytes:space:bytes{selector}"));
        let path = format!("/pyroscope/render?query={query}&from=now-10m&until=now&format=json");
        pyroscope.wait_for(kind, |pyroscope| {
            let answer: Value = serde_json::from_str(&pyroscope.get(&path)?).ok()?;
            let names = answer["flamebearer"]["names"].as_array()?.clone();
            (names.len() > 1).then_some(names)
        })
    };
    let live = names("inuse_space");
    assert!(
        ["main", "download", "add_node"]
            .iter()
            .all(|name| live.contains(&Value::from(*name)))
    );
    let allocated = names("alloc_space");
    assert!(allocated.contains(&Value::from("live")), "{allocated:?}");
    assert!(
        !allocated.contains(&Value::from("download")),
        "{allocated:?}"
    );
}

/// A request to Parca's query service, from the published `parca/query/v1alpha1/query.proto`.
#[derive(Message)]
struct Query {
    /// 2: merge all profiles of a time.
    #[prost(int32, tag = "1")]
    mode: i32,
    #[prost(message, optional, tag = "3")]
    merge: Option<Merge>,
    /// 2: the functions.
    #[prost(int32, tag = "5")]
    report: i32,
}

#[derive(Message)]
struct Merge {
    #[prost(string, tag = "1")]
    query: String,
    #[prost(message, optional, tag = "2")]
    start: Option<Timestamp>,
    #[prost(message, optional, tag = "3")]
    end: Option<Timestamp>,
}

#[derive(Message)]
struct Timestamp {
    #[prost(uint64, tag = "1")]
    seconds: u64,
}

#[test]
fn parca_shows_the_profiles_that_it_discovers_and_pulls() {
    if !is_full() {
        return;
    }
    let planted = Planted::start(&[], OFTEN);
    let server = Server::start(&[&planted.pid()]);
    let room = room();
    let address = &server.address;
    // Only heap profiles: Parca's usual configuration asks for those of a Go program as well.
    let off = ["block", "goroutine", "mutex", "process_cpu"]
        .map(|kind| format!("{kind}: {{enabled: false}}"));
    let configuration = format!(
        "object_storage: {{bucket: {{type: FILESYSTEM, config: {{directory: data}}}}}}\n\
         scrape_configs: [{{job_name: neap, scrape_interval: 1s, \
           http_sd_configs: [{{url: 'http://{address}/targets', refresh_interval: 1s}}], \
           profiling_config: {{pprof_config: {{{}}}}}}}]\n",
        off.join(", ")
    );
    fs::write(room.path().join("parca.yaml"), configuration).unwrap();
    let place = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("parca");
    command.arg(format!("--http-address={place}"));
    let parca = Engine::start(&mut command, room, place).expect("parca is not installed");
    let time = |seconds| Some(Timestamp { seconds });
    let query = |kind: &str| {
        let labels = format!("{{service_name=\"planted\",pid=\"{}\"}}", planted.pid());
        let query = format!("memory:{kind}:bytes:space:bytes{labels}");
        let merge = Merge {
            query,
            start: time(now() - 600),
            end: time(now() + 600),
        };
        let message = Query {
            mode: 2,
            merge: Some(merge),
            report: 2,
        }
        .encode_to_vec();
        // One frame of gRPC.
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let frame = [&[0], &length[..], &message].concat();
        let path = "/api/parca.query.v1alpha1.QueryService/Query";
        parca.post(path, "application/grpc-web+proto", &frame)
    };
    for kind in ["inuse_space", "alloc_space"] {
        parca.wait_for(kind, |_| {
            let answer = query(kind)?;
            let answer = String::from_utf8_lossy(&answer);
            ["download", "add_node"]
                .iter()
                .all(|name| answer.contains(name))
                .then_some(())
        });
    }
}
