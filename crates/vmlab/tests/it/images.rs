//! Guest images: the same from the same, and for both architectures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use guest::qemu::find_qemu;
use record::{FailureKind, Outcome};
use runner::store;
use rustix::process::Signal;
use serde_json::Value;
use suite::{Tier, needs, until};
use vmconfig::Arch;

use crate::lab::{Machine, VMLAB, said, vmlab};
use crate::running::{RunningVmlab, Study, assert_complete, results};

/// What `vmlab image show --json` says of the small image in a cache of its
/// own, freshly built.
fn built_in(cache: &tempfile::TempDir) -> Value {
    let said = |args: &[&str]| {
        let output =
            Command::new(VMLAB).args(args).env("XDG_CACHE_HOME", cache.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    said(&["image", "build"]);
    let shown = String::from_utf8(said(&["image", "show", "--json"])).unwrap();
    crate::schemas::holds("image", &shown)
}

#[test]
fn two_builds_of_one_recipe_have_the_same_content() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let caches = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let shown = caches.each_ref().map(built_in);
    assert_eq!(shown[0]["packages"], shown[1]["packages"], "the mirror changed meanwhile");
    assert_eq!(shown[0]["content_hash"], shown[1]["content_hash"]);
    assert_eq!(shown[0]["content_hash"].as_str().unwrap().len(), 64);
    let names: Vec<_> =
        shown[0]["packages"].as_array().unwrap().iter().map(|package| &package["name"]).collect();
    for wanted in ["fio", "nginx-light", "qemu-guest-agent", "rt-tests"] {
        assert!(names.iter().any(|name| *name == wanted), "{wanted}");
    }
}

/// What others take of an image: a container image without a container engine, disks.
#[test]
fn images_are_written_for_others() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let export = |to: &str, out: &str| {
        let out = folder.path().join(out);
        let out = out.to_str().unwrap();
        let tag = ["--tag", "registry.example/lab/guest:1"];
        said(&mut vmlab([&["image", "export", "debian-12", "--to", to, out], &tag[..]].concat()))
    };
    export("oci", "layout").has_code(0);
    let read = |path: &str| fs::read(folder.path().join("layout").join(path)).unwrap();
    let json = |path: &str| serde_json::from_slice::<Value>(&read(path)).unwrap();
    let of = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let index = json("index.json");
    let annotations = &index["manifests"][0]["annotations"];
    assert_eq!(annotations["io.containerd.image.name"], "registry.example/lab/guest:1");
    let layer = json(&of(&index["manifests"][0]))["layers"][0].clone();
    let path = folder.path().join("layout").join(of(&layer));
    assert_eq!(fs::metadata(&path).unwrap().len(), layer["size"].as_u64().unwrap());
    let listed = Command::new("tar").arg("-tvf").arg(&path).arg("--numeric-owner").output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    for file in ["boot/vmlinuz", "boot/initrd.cpio", "disk/root.ext4"] {
        let line = listed.lines().find(|line| line.ends_with(file));
        let line = line.unwrap_or_else(|| panic!("{file}: {listed}"));
        assert!(line.starts_with("-r--r--r-- 107/107"), "{line}");
    }
    export("oci", "layout").is_error(&["is there already"]);

    export("raw", "root.raw").has_code(0);
    export("qcow2", "root.qcow2").has_code(0);
    let images = ["root.raw", "root.qcow2"].map(|name| folder.path().join(name));
    let same = Command::new("qemu-img").arg("compare").args(&images).output().unwrap();
    assert!(same.status.success(), "{same:?}");
    let out = folder.path().join("unknown.raw");
    let words = ["image", "export", "nope", "--to", "raw", out.to_str().unwrap()];
    said(&mut vmlab(words)).is_error(&["nope"]);
}

/// One tag for all images, and manifests that vmlab's own readers take.
#[test]
fn containerfiles_and_manifests_are_filled_from_one_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = tempfile::tempdir().unwrap();
    let mut render = Command::new(root.join("packaging/render"));
    let render = render.arg(out.path()).env("VMLAB", env!("CARGO_BIN_EXE_vmlab"));
    said(render).has_code(0);
    let files = |folder: &Path| -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| name != "images.env").collect()
    };
    let (mut made, mut templates) = (files(out.path()), files(&root.join("packaging/images")));
    made.sort();
    templates.sort();
    assert_eq!(made, templates);
    let all: String =
        made.iter().map(|name| fs::read_to_string(out.path().join(name)).unwrap()).collect();
    assert!(!all.contains("${"), "{all}");
    // What scripts make has the names of the same file.
    for script in ["packaging/oci", "scripts/get-kube"] {
        let text = fs::read_to_string(root.join(script)).unwrap();
        assert!(
            text.contains("packaging/images/images.env\"\n")
                || text.contains("\n. packaging/images/images.env\n"),
            "{script}"
        );
    }
    for script in ["packaging/oci", "scripts/get-kube", "scripts/kubevirt-images"] {
        let text = fs::read_to_string(root.join(script)).unwrap();
        for own in ["bookworm", "trixie", "1.36.", "v1.7.", "docker.io/"] {
            assert!(!text.contains(own), "{script} has {own} of its own");
        }
    }
    let tags: Vec<&str> = all
        .split_whitespace()
        .filter(|word| word.contains("registry.example/"))
        .map(|word| word.trim_matches('"').rsplit_once(':').unwrap().1)
        .collect();
    assert!(tags.len() > 4 && tags.iter().all(|tag| *tag == tags[0]), "{tags:?}");
    let vmi = out.path().join("guest-vmi.yaml");
    let read = said(&mut vmlab(["convert", "--to", "qemu", vmi.to_str().unwrap()]));
    // Where the disk is, only a cluster knows.
    read.has_code(1);
    assert!(read.stdout.contains("cores=2") && read.stdout.contains("-m 1024M"), "{read:#?}");

    let say = |extra: &[&str]| {
        let mut words = vec!["image", "render", "--env", "packaging/images/images.env"];
        words.extend(extra);
        said(vmlab(words).current_dir(&root))
    };
    let vmi = "packaging/images/guest-vmi.yaml";
    say(&[vmi]).is_error(&["images.env:", "${TAG} is not set"]);
    say(&["--set", "TAG=1", vmi]).is_error(&["No template uses", "GUEST_DISK_SIZE (packaging/"]);
    say(&["--set", "TAG=1", "/nonexistent.yaml"]).is_error(&["/nonexistent.yaml"]);
    say(&["--set", "TAG=", vmi]).is_error(&["--set TAG", "\"\" is no tag"]);
    say(&["--set", "TAG=a b:c", vmi]).is_error(&["--set TAG", "\"a b:c\" is no tag"]);
    // What a comment names and nothing else is not used.
    let containerfile = "packaging/images/vmlab.Containerfile";
    say(&["--set", "TAG=1", containerfile])
        .is_error(&["No template uses", "VMLAB_IMAGE (packaging/"]);
}

/// What a build has unpacked so far; a folder that it names after itself.
fn unpacked(cache: &Path) -> Option<PathBuf> {
    let images = fs::read_dir(cache.join("vmlab/images")).ok()?.flatten();
    images.map(|entry| entry.path().join("root")).find(|root| root.join("usr/bin").is_dir())
}

#[test]
fn a_signal_ends_a_build_and_what_was_unpacked_goes() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let cache = tempfile::tempdir().unwrap();
        let mut build = vmlab(["image", "build"]);
        let build = build.env("XDG_CACHE_HOME", cache.path());
        let mut running = RunningVmlab::spawn(build, cache.path());
        let root = running.until("an unpacked system", |_| unpacked(cache.path()));
        running.interrupt(signal);
        // By a process of its own: nobody is to wait for it but this test.
        until("the removal of what was unpacked", || (!root.parent()?.exists()).then_some(()));
    }
}

#[test]
fn an_image_that_is_not_there_is_said() {
    let machine = Machine::with_qemu("7.2.0");
    machine
        .say(["image", "show", "debian-12-aarch64"])
        .is_error(&["debian-12-aarch64 is not built yet", "vmlab image build debian-12-aarch64"]);
    machine
        .say(["image", "show", "debian-11"])
        .is_error(&["\"debian-11\"", "builtin:debian-12-full"]);
}

#[test]
fn arm64_guests_run_the_same_studies() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if let Err(error) = find_qemu(Arch::Aarch64) {
        suite::skip(error);
        return;
    }
    let study = Study::new(
        1,
        "[[variant]]\nname = \"one\"\nvm.memory_mib = 512\n\n\
         [[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\n\n\
         [[workload]]\nrun = \"cyclictest\"\nparams = { loops = 2000 }\n",
    );
    study.change("seed = 5", "seed = 5\narch = \"aarch64\"");
    let said = study.start().wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let contents = assert_complete(&study.dir());
    assert_eq!(contents.plan.variants[0].spec.arch, Arch::Aarch64);
    for result in results(&contents.events) {
        assert!(result.outcome.is_completed(), "{result:#?}");
        let counters = &result.runs[0].counters;
        assert!(counters.get("guest.timer_interrupts").is_some_and(|count| count > 0.0));
    }
}

/// A kernel by name, and one by its package's file: Debian's own both, so that it is
/// known what must boot.
#[test]
fn guests_boot_other_kernels() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let named = "linux-image-amd64";
    let asked = Command::new("apt-cache").args(["depends", named]).output();
    let listed = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_here = std::env::consts::ARCH == "x86_64";
    let real = listed.ok().filter(|_| is_here).and_then(|listed| {
        let mut lines = listed.lines();
        let line = lines.find_map(|line| line.trim().strip_prefix("Depends: linux-image-6.1"))?;
        Some(format!("linux-image-6.1{line}"))
    });
    let Some(real) = real else {
        suite::skip("apt knows no kernel of Debian 12");
        return;
    };
    let study = Study::new(
        1,
        "[[variant]]\nname = \"cloud\"\n\n\
         [[variant]]\nname = \"named\"\nvm.image = \"builtin:debian-12+linux-image-amd64\"\n\n\
         [[variant]]\nname = \"file\"\nvm.image = \"builtin:debian-12+kernels/one.deb\"\n\n\
         [[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\n",
    );
    let kernels = study.folder().join("kernels");
    fs::create_dir(&kernels).unwrap();
    // Not there yet: said by line, before anything is built or booted.
    study.start().wait().is_error(&["study.toml:", "kernels/one.deb", "No such file"]);
    let mut fetch = Command::new("apt-get");
    fetch.args(["-qq", "-o", "APT::Sandbox::User=root", "download", &real]);
    assert!(fetch.current_dir(&kernels).status().unwrap().success());
    let fetched = fs::read_dir(&kernels).unwrap().next().unwrap().unwrap().path();
    fs::rename(fetched, kernels.join("one.deb")).unwrap();

    let said = study.start().wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let contents = assert_complete(&study.dir());
    let release = real.trim_start_matches("linux-image-");
    for result in results(&contents.events) {
        assert!(result.outcome.is_completed(), "{result:#?}");
        let kernel = &result.facts["guest.kernel"];
        match result.trial.variant.as_str() {
            "cloud" => assert!(kernel.ends_with("-cloud-amd64"), "{kernel}"),
            "file" => assert_eq!(kernel, release),
            // The mirror's newest, where apt here may know a newer one.
            _ => assert!(kernel.ends_with("-amd64") && !kernel.contains("cloud"), "{kernel}"),
        }
    }
    let listed = said_of_list();
    assert!(listed.contains("debian-12+linux-image-amd64-"), "{listed}");
    assert!(listed.contains("debian-12+one.deb-"), "{listed}");
    said_rm("debian-12+one.deb");
    assert!(!said_of_list().contains("debian-12+one.deb-"));
}

fn said_of_list() -> String {
    let listed = vmlab(["image", "list"]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap()
}

fn said_rm(image: &str) {
    said(&mut vmlab(["image", "rm", image])).has_code(0);
}

/// Its tools run, and it alone has the governor that polls: KVM's guests do, others say
/// that they are not what was asked for.
#[test]
fn the_newer_guest_runs_the_same_studies() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let image = "vm.image = \"builtin:debian-13\"\nvm.memory_mib = 512\n";
    let tools = ["hackbench", "cyclictest", "sysbench-cpu", "stress-ng", "redis", "fio", "iperf3"];
    let tools = tools.map(|tool| format!("[[workload]]\nrun = \"{tool}\"\n"));
    let study = Study::new(
        1,
        &format!(
            "[[variant]]\nname = \"plain\"\n{image}\n\
             [[variant]]\nuse = \"haltpoll\"\n{image}\n{}",
            tools.join("\n")
        ),
    );
    study.start().wait();
    let all = results(&store::read(&study.dir()).unwrap().events);
    assert_eq!(all.len(), 14, "{all:#?}");
    for result in all {
        let polls = result.trial.variant == "haltpoll";
        let is_kvm = result.facts.contains_key("vcpu.kvm-poll-control");
        match &result.outcome {
            Outcome::Failed(failure) if polls && !is_kvm => {
                assert_eq!(failure.kind, FailureKind::NotAsClaimed, "{failure:?}");
                assert!(failure.detail.contains("its governor menu"), "{failure:?}");
            }
            outcome => assert!(outcome.is_completed() && polls <= is_kvm, "{result:#?}"),
        }
    }
}
