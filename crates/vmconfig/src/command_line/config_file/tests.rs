//! Files of `-readconfig` as QEMU takes them.

use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::command_line::CommandLine;
use crate::source::{FileContent, JoinedText, NamedFile, SourceText};

/// The options of a file, as a command line has them, and what is told of its lines.
fn check(text: &str, options: &[&str], unread: &[&str]) {
    let found = read(text, 0);
    let said: Vec<String> = found
        .options
        .iter()
        .map(|option| format!("-{} {}", option.name.value, option.text()))
        .collect();
    assert_eq!(said, options, "{text:?}");
    let told: Vec<&str> = found.unread.iter().map(|at| at.value.as_str()).collect();
    assert_eq!(told, unread, "{text:?}");
}

#[test]
fn groups_are_options() {
    check(
        "# one\n\n[machine]\n  type = \"q35\"\n\taccel=\"kvm\"\n",
        &["-machine type=q35"],
        &["accel=\"kvm\" (no group, and no key with a value)"],
    );
    check(
        "[drive \"d\"]\n file = \"a,b.img\"\n if = \"none\"\n[device]\n driver = \"x\"",
        &["-drive id=d,file=a,,b.img,if=none", "-device driver=x"],
        &[],
    );
    check("[smp-opts]\n cpus = \"4\"\n", &["-smp cpus=4"], &[]);
    check("[memory]\n size = \"1G\"\n", &["-m size=1G"], &[]);
    check("[boot-opts]\n order = \"c\"\n", &["-boot order=c"], &[]);
    check(
        "[global]\n driver = \"d\"\n property = \"p\"\n value = \"1,2\"\n[global]\n driver = \"d\"\n",
        &["-global d.p=1,2"],
        &["[global] (not all of driver, property and value)"],
    );
    // What stands behind a value, or a group's name, is passed over, as QEMU does.
    check("[name] # x\n guest = \"a\" # b\n", &["-name guest=a"], &[]);
    check("[name]\n guest = \"\"\n process = \"open\n", &["-name guest=,process=open"], &[]);
    check("[ drive \"d\" ]\n", &["-drive id=d"], &[]);
}

#[test]
fn lines_that_say_nothing_are_told() {
    check("x = \"1\"\n", &[], &["x = \"1\" (it stands in no group)"]);
    check("[cpu]\n model = \"max\"\n", &[], &["[cpu] (no group that is known)"]);
    check(" [name]\n", &[], &["[name] (it stands in no group)"]);
    check(
        "[name]\n guest = me\n  \n",
        &["-name "],
        &[
            "guest = me (without quotes, which QEMU takes for an empty value)",
            "a line of blanks (no group, and no key with a value)",
        ],
    );
    let long = format!("[name]\n guest = \"{}\"\n", "x".repeat(2000));
    assert_eq!(read(&long, 0).unread.len(), 1);
}

/// A command line that names the file `vm.cfg`, with that file.
fn joined(line: &str, file: &str) -> JoinedText {
    let content = FileContent::Text(file.to_owned());
    let named = NamedFile { name: "vm.cfg".to_owned(), path: "/etc/vm.cfg".to_owned(), content };
    JoinedText::new(line.to_owned(), vec![named])
}

const FILE: &str = "\
[machine]
  type = \"q35\"
[accel]
  accel = \"kvm\"
[smp-opts]
  cpus = \"4\"
  sockets = \"2\"
[memory]
  size = \"2048\"
[object \"m0\"]
  qom-type = \"memory-backend-ram\"
  size = \"1G\"
[object \"m1\"]
  qom-type = \"memory-backend-ram\"
  size = \"1G\"
[numa]
  type = \"node\"
  cpus = \"0-1\"
  memdev = \"m0\"
[numa]
  type = \"node\"
  cpus = \"2-3\"
  memdev = \"m1\"
[drive \"d\"]
  file = \"/d.raw\"
  format = \"raw\"
  if = \"none\"
[device]
  driver = \"virtio-blk-pci\"
  drive = \"d\"
  unknown = \"9\"
[spice]
  port = \"1\"
[cpu]
  model = \"max\"
";

#[test]
fn a_vm_is_the_same_in_a_file_and_in_options() {
    let text = joined("qemu-system-x86_64 \\\n  -readconfig vm.cfg \\\n  -cpu host", FILE);
    let source = text.source();
    let read = crate::qemu::parse_source(&source).unwrap();
    let options = "qemu-system-x86_64 -machine q35 -accel kvm -smp 4,sockets=2 -m 2048 \
                   -object memory-backend-ram,id=m0,size=1G \
                   -object memory-backend-ram,id=m1,size=1G -numa node,cpus=0-1,memdev=m0 \
                   -numa node,cpus=2-3,memdev=m1 -drive id=d,file=/d.raw,format=raw,if=none \
                   -device virtio-blk-pci,drive=d,unknown=9 -spice port=1 -cpu host";
    let same = crate::qemu::parse(options).unwrap();
    assert_eq!(read.settings, same.settings);
    assert_eq!((read.settings.vcpus(), read.settings.numa.len()), (4, 2));
    let kept: Vec<String> = read
        .kept
        .iter()
        .map(|kept| format!("{:?}:{} {} {}", kept.file, kept.line, kept.path, kept.text))
        .collect();
    let file = "Some(\"/etc/vm.cfg\")";
    let expected = [
        format!("{file}:28 -device unknown=9"),
        format!("{file}:32 -spice port=1"),
        format!("{file}:34 not read [cpu] (no group that is known)"),
    ];
    assert_eq!(kept, expected);
    let at = |field: &str| read.in_file(read.line(field).unwrap());
    assert_eq!(at("memory_mib"), (Some("/etc/vm.cfg"), 9));
    assert_eq!(at("cpu_model"), (None, 3));
}

#[test]
fn what_cannot_be_read_is_told_and_no_error() {
    let line = "qemu-system-x86_64 -readconfig vm.cfg -readconfig $X -m 1G";
    let content = FileContent::Unreadable("No such file".to_owned());
    let named = NamedFile { name: "vm.cfg".to_owned(), path: "vm.cfg".to_owned(), content };
    let missing = JoinedText::new(line.to_owned(), vec![named]);
    let [read] = &CommandLine::all_of(&missing.source())[..] else { panic!() };
    let told: Vec<&str> = read.unread.iter().map(|at| at.value.as_str()).collect();
    assert_eq!(told, ["-readconfig vm.cfg (No such file)", "-readconfig $X"]);
    let parsed = crate::qemu::parse_source(&missing.source()).unwrap();
    assert_eq!(parsed.settings.memory_mib, 1024);
    assert!(parsed.kept.iter().any(|kept| kept.text == "-readconfig vm.cfg (No such file)"));
    // Nobody looked.
    let [read] = &CommandLine::all_of(&SourceText::new(line))[..] else { panic!() };
    assert_eq!(read.unread[0].value, "-readconfig vm.cfg");
    let mut asked = Vec::new();
    CommandLine::config_files(&format!("{line}\n{line}"), |name| {
        asked.push(name.to_owned());
        (name.to_owned(), Err(String::new()))
    });
    assert_eq!(asked, ["vm.cfg"]);
}

/// Every installed QEMU is asked whether it has the groups, and takes the file.
#[test]
fn qemu_has_these_groups() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked = false;
    for program in ["qemu-system-x86_64", "qemu-system-aarch64"] {
        let mut says = |text: &str| {
            let file = folder.path().join("vm.cfg");
            std::fs::write(&file, text).unwrap();
            // It ends by itself, whatever the file says, for there is no such machine.
            let output = Command::new(program)
                .args(["-machine", "type=no-such-machine", "-readconfig"])
                .arg(&file)
                .output()
                .ok()?;
            asked = true;
            Some(String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let Some(none) = says("[no-such-group]\n x = \"1\"\n") else { continue };
        assert!(none.contains("There is no option group"), "{none}");
        for name in ["cpu", "blockdev"] {
            let said = says(&format!("[{name}]\n x = \"1\"\n")).unwrap();
            assert!(said.contains("There is no option group"), "{name}: {said}");
        }
        for name in ["machine", "smp-opts", "memory", "boot-opts", "numa", "device", "drive"] {
            let said = says(&format!("[{name}]\n")).unwrap();
            assert!(!said.contains("There is no option group"), "{name}: {said}");
        }
        let said = says("x = \"1\"\n").unwrap();
        assert!(said.contains("no group defined"), "{said}");
        let said = says("[name]\n guest = \"a\"\n  \n").unwrap();
        assert!(said.contains(":3: parse error"), "{said}");
        let said = says("[name] # x\n guest = me\n debug-threads = \"on\" # y\n").unwrap();
        assert!(!said.contains("vm.cfg"), "{said}");
    }
    if !asked {
        suite::skip("no QEMU is installed");
    }
}

proptest! {
    /// Keys and values come back, each from its place, however they are spaced.
    #[test]
    fn settings_keep_value_and_place(
        before in "[a-z \n#]{0,20}",
        settings in prop::collection::vec(
            ("[a-z][a-z.-]{0,8}", "[ !#-~]{0,12}", "[ \t]{1,2}"), 1..6
        ),
    ) {
        let mut text = String::from("[device \"i\"]\n");
        // A later one would hold in place of the group's own.
        let settings: Vec<_> = settings.into_iter().filter(|one| one.0 != "id").collect();
        for (key, value, blank) in &settings {
            text += &format!("{blank}{key}{blank}= \"{value}\"{blank}# {key}\n");
        }
        let text = format!("{}\n{text}", before.replace('\n', "\n#"));
        let found = read(&text, 0);
        let option = found.options.last().unwrap();
        let properties = option.properties("driver");
        for (key, value, _) in &settings {
            let last = settings.iter().rfind(|one| one.0 == *key).unwrap();
            let at = properties.at(key).unwrap();
            prop_assert_eq!(&at.value, &last.1);
            if key == &last.0 && !value.contains(',') && *value == last.1 && !value.is_empty() {
                prop_assert_eq!(&text[at.span.start..at.span.end], value.as_str());
            }
        }
        prop_assert_eq!(properties.get("id"), Some("i"));
    }

    /// Any text is read, and each line of it is understood, or told, or a comment.
    #[test]
    fn any_text_is_read(text in "[\\[\\]a-z0-9 =\"#,\n\t\\PC]{0,200}") {
        let joined = joined("qemu-system-x86_64 -readconfig vm.cfg -m 1G", &text);
        let source = joined.source();
        for line in CommandLine::all_of(&source) {
            for at in &line.unread {
                let place = source.place(at.span);
                prop_assert_eq!(place.file.as_deref(), Some("/etc/vm.cfg"));
                prop_assert!(place.line <= text.lines().count().max(1));
            }
        }
        let _ = crate::qemu::parse_source(&source);
    }
}
