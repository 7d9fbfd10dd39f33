//! Profiles of many machines in one place: what agents pull from `neap serve`, and what
//! real servers show of it.

use crate::engine::{Engine, escaped, free_port};
use crate::profile::{Planted, tool};
use crate::serve::Server;
use crate::skips::{announce, needs_root};
use crate::stage::{printed, room};
use prost::Message;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// A sample every 4 KiB: the estimates are within a few percent of the truth.
pub(crate) const OFTEN: Option<&str> = Some("4096");

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
    for path in ["heap?program=absent", "allocs?program=plante"] {
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
        return needs_root("no control group can be made here");
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

pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// Whether this is a run of ci/fleet.sh, which builds the servers below.
fn is_full() -> bool {
    let full = std::env::var_os("FLEET").is_some();
    if !full {
        announce("ci/fleet.sh runs this with the real servers");
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
