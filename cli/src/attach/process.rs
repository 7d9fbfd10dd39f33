//! A process by its directory in /proc, and where it runs.
//!
//! The directory is kept open. It never becomes the directory of another process with the same PID.
//! Container runtimes and systemd name control groups; the kernel shows the names in
//! `/proc/PID/cgroup`, relative to the reader's own control group namespace.

use crate::failure::Failure;
use regex_lite::Regex;
use rustix::fs::{AtFlags, Dir, FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::LazyLock;

/// Most bytes read of a file in /proc. The maps and smaps of a process with 65,530 mappings are
/// shorter.
const LONGEST: u64 = 256 << 20;
/// Most descriptors examined of those with the right name. A process may have any number.
const MOST_DESCRIPTORS: usize = 64;
/// The length to which the kernel cuts process names.
const SHORT_NAME: usize = 15;

/// A process that exists, or existed when this value was made.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    directory: OwnedFd,
}

impl Process {
    /// The process with this PID.
    pub fn open(pid: i32) -> Result<Process, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty()) {
            Ok(directory) => Ok(Process { pid, directory }),
            Err(Errno::NOENT) if Path::new("/proc/self").exists() => Err(failure!(
                "there is no process {pid}; neap stat lists those under Neap"
            )),
            Err(error) => Err(failure!("cannot look at process {pid} in /proc: {error}")),
        }
    }

    /// Its PID.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// `redis-server (1234)`.
    pub fn title(&self) -> String {
        format!("{} ({})", crate::failure::shown(&self.name()), self.pid)
    }

    /// Its name: the kernel's, or a longer form from its first argument where the kernel cut it.
    pub fn name(&self) -> String {
        let short = self.text("comm").unwrap_or_default();
        let short = short.trim_end_matches('\n');
        let arguments = self.text("cmdline").unwrap_or_default();
        let first = arguments.split('\0').next().unwrap_or_default();
        let base = first.rsplit('/').next().unwrap_or_default();
        if short.len() >= SHORT_NAME && base.starts_with(short) {
            base.to_owned()
        } else {
            short.to_owned()
        }
    }

    /// The file name of its program, through all links; `None` if the user may not see it.
    pub fn program(&self) -> Option<String> {
        let path = self.link("exe")?;
        path.rsplit('/').next().map(str::to_owned)
    }

    /// Where a link in its directory leads; `None` if the user may not see it.
    pub fn link(&self, name: &str) -> Option<String> {
        let path = rustix::fs::readlinkat(&self.directory, name, Vec::new()).ok()?;
        Some(path.to_string_lossy().into_owned())
    }

    /// Where it runs.
    pub fn place(&self) -> Whereabouts {
        Whereabouts::of(&self.text("cgroup").unwrap_or_default())
    }

    /// Whether it has ended: it is gone, or a zombie.
    pub fn has_ended(&self) -> bool {
        let Ok(status) = self.text("stat") else {
            return true;
        };
        let state = status.rsplit(") ").next().unwrap_or_default();
        state.starts_with(['Z', 'X'])
    }

    /// A field of its status, such as `Uid:`.
    pub fn status(&self, field: &str) -> Option<String> {
        let status = self.text("status").ok()?;
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        value.map(|value| value.trim().to_owned())
    }

    /// The effective user ID.
    pub fn user(&self) -> Option<u32> {
        let users = self.status("Uid:")?;
        users.split_whitespace().nth(1)?.parse().ok()
    }

    /// Its PIDs, in our PID namespace and the nested ones.
    pub fn numbers(&self) -> Vec<u64> {
        let nested = self.status("NSpid:").unwrap_or_default();
        let nested = nested
            .split_whitespace()
            .filter_map(|word| word.parse().ok());
        let own = u64::from(self.pid.unsigned_abs());
        nested.chain([own]).collect()
    }

    /// Opens a file in its directory.
    pub fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Reads a file in its directory.
    pub fn text(&self, name: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        let file = self.file(name, OFlags::RDONLY)?;
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Its descriptors of memory files at `link`, as names in its directory, up to a limit.
    pub fn descriptors(&self, link: &str) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in Dir::new(self.file("fd", OFlags::RDONLY | OFlags::DIRECTORY)?)? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy();
            if found.len() < MOST_DESCRIPTORS && self.leads_to(&number, link) {
                found.push(format!("fd/{number}"));
            }
        }
        Ok(found)
    }

    /// Whether a descriptor refers to a memory file at `link`. A file elsewhere may have the same
    /// name; it is never opened, because its file system may not answer.
    fn leads_to(&self, number: &str, link: &str) -> bool {
        let name = format!("fd/{number}");
        let target = rustix::fs::readlinkat(&self.directory, name.as_str(), Vec::new());
        if !target.is_ok_and(|target| target.to_bytes() == link.as_bytes()) {
            return false;
        }
        let information = self.text(&format!("fdinfo/{number}")).unwrap_or_default();
        mount(&information) == memory_mount()
            && rustix::fs::statat(&self.directory, name.as_str(), AtFlags::empty())
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }
}

/// The mount of a descriptor's file, from the descriptor's fdinfo.
fn mount(information: &str) -> Option<u64> {
    let mut lines = information.lines();
    let line = lines.find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

/// The mount of all memory files, found through one made here.
fn memory_mount() -> Option<u64> {
    static MOUNT: LazyLock<Option<u64>> = LazyLock::new(|| {
        let file = rustix::fs::memfd_create("neap-mount", MemfdFlags::CLOEXEC).ok()?;
        let information = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        mount(&std::fs::read_to_string(information).ok()?)
    });
    *MOUNT
}

/// Where a process runs. What its control group does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whereabouts {
    container: Option<String>,
    pod: Option<String>,
    unit: Option<String>,
}

impl Whereabouts {
    /// The place in the text of `/proc/PID/cgroup`. Of several hierarchies, the one that tells most
    /// counts: where a runtime does not manage a hierarchy, its containers are in its own group.
    pub fn of(groups: &str) -> Whereabouts {
        let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        paths.map(Whereabouts::of_path).max().unwrap_or_default()
    }

    /// The outermost pod and its outermost container. Deeper groups may be the container's own,
    /// with names that it chose.
    fn of_path(path: &str) -> Whereabouts {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let mut place = Whereabouts::default();
        // containerd without its systemd driver joins a pod's slice, the runtime and the container
        // to one name.
        for name in path.split(['/', ':']) {
            if let (None, Some(pod)) = (&place.pod, pod(name)) {
                // A container above the pod is the node that the pod runs on.
                (place.pod, place.container) = (Some(pod), None);
            }
            place.container = place.container.or_else(|| container(name));
        }
        if (&place.pod, &place.container) == (&None, &None) {
            let mut names = path.rsplit('/');
            place.unit = names
                .find(|name| name.ends_with(".service"))
                .map(str::to_owned);
        }
        place
    }

    /// The labels of a process at this place: names and values.
    pub fn labels(&self, pid: i32, program: &str) -> Vec<(&'static str, String)> {
        let all = [
            ("pid", Some(pid.to_string())),
            ("program", Some(program.to_owned())),
            ("pod_uid", self.pod.clone()),
            ("container_id", self.container.clone()),
            ("unit", self.unit.clone()),
        ];
        let known = all.into_iter();
        known
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// The UID in the name of a pod's group: `podUID` or `kubepods-burstable-podUID.slice`, where
/// underscores replace the dashes of the UID. The UID of a static pod has no dashes.
fn pod(name: &str) -> Option<String> {
    static POD: LazyLock<Regex> = LazyLock::new(|| {
        let uid = "[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}";
        Regex::new(&format!("^(?:.*-)?pod({uid})(?:[.]slice)?$")).expect("the pattern is sound")
    });
    let uid = POD.captures(name)?.get(1)?;
    Some(uid.as_str().replace('_', "-"))
}

/// The ID in the name of a container's group: the ID alone, or `RUNTIME-ID.scope`. On Amazon ECS,
/// it is the task's ID and a number.
fn container(name: &str) -> Option<String> {
    static ID: LazyLock<Regex> = LazyLock::new(|| {
        let ids = "^(?:(?:.*-)?([0-9a-f]{64})|([0-9a-f]{32}-[0-9]{1,20}))(?:[.]scope)?$";
        Regex::new(ids).expect("the pattern is sound")
    });
    let found = ID.captures(name)?;
    let id = found.get(1).or(found.get(2))?;
    // The monitor of a container runs beside it.
    (!name[..id.start()].ends_with("conmon-")).then(|| id.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;
    use proptest::prelude::*;

    fn own() -> Process {
        Process::open(std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn only_memory_files_are_found_by_their_name() {
        let link = "/memfd:neap-test (deleted)";
        assert_eq!(own().descriptors(link).unwrap(), Vec::<String>::new());
        let files: Vec<Forged> = (0..MOST_DESCRIPTORS + 2)
            .map(|_| Forged::unsealed(c"neap-test", 1))
            .collect();
        assert_eq!(own().descriptors(link).unwrap().len(), MOST_DESCRIPTORS);
        drop(files);
        let ordinary = tempfile::NamedTempFile::new().unwrap();
        let link = ordinary.path().to_str().unwrap();
        assert_eq!(own().descriptors(link).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_process_tells_who_it_is() {
        let own = own();
        let numbers = own.numbers();
        assert!(numbers.contains(&u64::from(std::process::id())));
        assert_eq!(own.user().unwrap(), crate::attach::memory_file::us());
        assert!(!own.has_ended() && !own.name().is_empty());
        assert!(Process::open(i32::MAX).is_err());
    }

    const ID: &str = "34dc0b5e626f2c5c4c5170e34b10e7654ce36f0fcd532739f4445baabea03376";
    const OUTER: &str = "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d";
    const POD: &str = "74c13223-5a00-11e9-b385-42010a80018d";
    const SLICE: &str = "kubepods-burstable-pod74c13223_5a00_11e9_b385_42010a80018d.slice";

    /// The pod, the container and the unit in the text of a process.
    fn told(groups: &str) -> [Option<String>; 3] {
        let Whereabouts {
            container,
            pod,
            unit,
        } = Whereabouts::of(groups);
        [pod, container, unit]
    }

    fn assert_path(path: &str, pod: Option<&str>, container: Option<&str>, unit: Option<&str>) {
        let path = path.replace("ID", ID).replace("OUTER", OUTER);
        let path = path.replace("SLICE", SLICE).replace("POD", POD);
        let expected = [pod, container, unit].map(|text| text.map(str::to_owned));
        for line in [
            format!("0::{path}"),
            format!("7:cpu,memory:{path} (deleted)"),
        ] {
            assert_eq!(told(&line), expected, "{line}");
        }
    }

    #[test]
    fn published_paths_of_pods() {
        for path in [
            "/kubepods/burstable/podPOD/ID",
            "/kubepods/podPOD/ID",
            "/kubepods.slice/kubepods-burstable.slice/SLICE/docker-ID.scope",
            "/kubepods.slice/kubepods-burstable.slice/SLICE/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-burstable.slice/SLICE/crio-ID.scope",
            // CRI-O puts the program into a group below.
            "/kubepods.slice/kubepods-burstable.slice/SLICE/crio-ID.scope/container",
            // containerd with kubelet's systemd driver, but without its own.
            "/system.slice/containerd.service/SLICE:cri-containerd:ID",
            // Kubernetes in Docker.
            "/docker/OUTER/kubelet/kubepods/besteffort/podPOD/ID",
            "/docker/OUTER/kubelet.slice/kubelet-kubepods.slice/kubelet-SLICE/cri-containerd-ID.scope",
            // As a daemon set sees it from a control group namespace of its own.
            "/../../SLICE/cri-containerd-ID.scope",
            // With a group that the container made.
            "/kubepods/burstable/podPOD/ID/cri-containerd-OUTER.scope",
        ] {
            assert_path(path, Some(POD), Some(ID), None);
        }
        let of_file = "8bc61e9f6ec4a0ae6d8b8b5b7cbe0a54";
        let path = format!("/kubepods/burstable/pod{of_file}/ID");
        assert_path(&path, Some(of_file), Some(ID), None);
        // The monitor of a container, and the pod's own group.
        let path = "/kubepods.slice/kubepods-burstable.slice/SLICE/crio-conmon-ID.scope";
        assert_path(path, Some(POD), None, None);
    }

    #[test]
    fn published_paths_of_containers() {
        for path in [
            "/docker/ID",
            "/system.slice/docker-ID.scope",
            "/ID",
            "/../cri-containerd-ID.scope",
            "/machine.slice/libpod-ID.scope",
            "/machine.slice/libpod-ID.scope/container",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
            "/ecs/0410eff2-7e59-4111-823e-1e0d98ef7f30/ID",
            "/docker/ID/docker/OUTER",
            "/docker/ID/system.slice/nginx.service",
        ] {
            assert_path(path, None, Some(ID), None);
        }
        let fargate = "e9d2e1f4a6f84bbd8f7d2c0b6f2f7a55-1234567890";
        let path = format!("/ecs/e9d2e1f4a6f84bbd8f7d2c0b6f2f7a55/{fargate}");
        assert_path(&path, None, Some(fargate), None);
    }

    #[test]
    fn published_paths_of_services() {
        for (path, unit) in [
            ("/system.slice/redis-server.service", "redis-server.service"),
            (
                "/system.slice/system-postgresql.slice/postgresql@15-main.service",
                "postgresql@15-main.service",
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-foot@1.service",
                "app-foot@1.service",
            ),
            // The names of scopes have numbers, so that they would be new labels each time.
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-4711.scope",
                "user@1000.service",
            ),
            (
                "/system.slice/systemd-udevd.service/udev",
                "systemd-udevd.service",
            ),
            ("/system.slice/a:b.service", "a:b.service"),
        ] {
            assert_path(path, None, None, Some(unit));
        }
        for path in [
            "/",
            "/init.scope",
            "/user.slice/user-0.slice/session-3.scope",
        ] {
            assert_path(path, None, None, None);
        }
    }

    #[test]
    fn of_several_hierarchies_the_one_that_tells_most_counts() {
        let groups = format!(
            "12:rdma:/\n3:cpu,cpuacct:/kubepods/burstable/pod{POD}/{ID}\n\
             1:name=systemd:/kubepods/burstable/pod{POD}/{ID}\n0::/system.slice/containerd.service\n"
        );
        assert_eq!(told(&groups), [Some(POD.into()), Some(ID.into()), None]);
    }

    #[test]
    fn names_that_look_like_others_are_none() {
        for path in [
            "/kubepods/burstable/pod/short",
            "/podman-POD",
            "/xpodPOD",
            "/kubepods/pod74c13223-5a00-11e9-b385-42010a80018g",
            "/kubepods/pod74c132235a00-11e9-b385-42010a80018d",
            "/docker/34DC0B5E626F2C5C4C5170E34B10E7654CE36F0FCD532739F4445BAABEA03376",
            "/docker/34dc0b5e626f2c5c",
            "/docker-.scope",
            "/e9d2e1f4a6f84bbd8f7d2c0b6f2f7a55-",
            "/e9d2e1f4a6f84bbd8f7d2c0b6f2f7a55-1.5",
            "",
        ] {
            assert_path(path, None, None, None);
        }
        assert_eq!(Whereabouts::of("::\n\n0\n0:\nx:y"), Whereabouts::default());
    }

    proptest! {
        #[test]
        fn any_text_is_a_place(groups in "([0-9]{0,2}:[a-z,=]{0,9}:)?[/.:a-f0-9podslice_\u{e9}\n-]{0,200}") {
            let labels = Whereabouts::of(&groups).labels(1, "a");
            prop_assert!(labels.len() <= 5);
        }
    }
}
