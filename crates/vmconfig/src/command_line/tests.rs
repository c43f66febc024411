//! Command lines as they are found and as QEMU reads them.

use super::*;

fn one(text: &str) -> CommandLine {
    CommandLine::one(text).unwrap()
}

#[test]
fn the_accelerator_is_what_qemu_tries_first() {
    let check = |text: &str, expected: &str| {
        assert_eq!(one(text).accelerators().names.join(":"), expected, "{text}");
    };
    check("qemu-system-x86_64 -m 1G", "tcg");
    check("kvm -m 4G -smp 4", "kvm:tcg");
    check("/usr/libexec/qemu-kvm -m 4G", "kvm:tcg");
    check("/usr/bin/kvm -accel tcg", "tcg");
    check("qemu-system-x86_64 -enable-kvm", "kvm");
    check("qemu-system-x86_64 -machine q35,accel=kvm:tcg", "kvm:tcg");
    check("qemu-system-x86_64 -M accel=kvm -machine q35", "kvm");
    check("qemu-system-x86_64 -accel kvm -accel tcg,thread=single", "kvm:tcg");
    check("qemu-system-x86_64 -machine accel= -m 1", "tcg");
}

#[test]
fn values_are_told_from_options() {
    let check = |text: &str, expected: &[(&str, &str)]| {
        let line = one(text);
        let found: Vec<(&str, &str)> =
            line.options.iter().map(|option| (option.name.value.as_str(), option.text())).collect();
        assert_eq!(found, expected, "{text}");
    };
    check("kvm -curses -smp 2", &[("curses", ""), ("smp", "2")]);
    check("kvm -append -v --m 1G", &[("append", "-v"), ("m", "1G")]);
    check("kvm -snapshot a.img -smp 2", &[("snapshot", ""), ("", "a.img"), ("smp", "2")]);
    check(
        "kvm -m 1 -new x -other -smp 1",
        &[("m", "1"), ("new", "x"), ("other", ""), ("smp", "1")],
    );
    check("kvm -m", &[("m", "")]);
    check("kvm\n-m\n1G\n-smp\n2\nls", &[("m", "1G"), ("smp", "2")]);
    check("-m 1G\n-smp 2", &[("m", "1G"), ("smp", "2")]);
}

#[test]
fn commands_that_start_no_vm_are_none() {
    for text in [
        "",
        "echo hello",
        "apt-get install -y qemu-system-x86 qemu-kvm",
        "ls -l /dev/kvm",
        "modprobe kvm",
        "which qemu-system-x86_64",
        "systemctl status kvm -l",
    ] {
        assert_eq!(CommandLine::all(text).len(), 0, "{text}");
    }
}

#[test]
fn scripts_as_people_write_them() {
    let text = "#!/bin/bash\n\
        MEM=8G\n\
        args=(\n  -machine q35,accel=kvm # fast\n  -smp 4 -m \"$MEM\"\n)\n\
        if [ -n \"$VNC\" ]; then\n  args+=(-vnc :1)\nfi\n\
        start() {\n  exec taskset -c 0-3 qemu-system-x86_64 \"${args[@]}\" \"$@\"\n}\n\
        start || echo failed\n";
    let [line] = &CommandLine::all(text)[..] else { panic!("{:?}", CommandLine::all(text)) };
    assert_eq!(line.before.len(), 4);
    assert_eq!(line.unresolved.len(), 2, "the array depends on VNC: {line:?}");
    assert_eq!((line.smp().0.vcpus, line.accelerators().first()), (4, "kvm"));
    let unit = "[Service]\nEnvironment=MEM=2G \"OPTS=-smp 4\"\n\
        ExecStart=/usr/bin/qemu-system-x86_64 $OPTS \\\n  -m ${MEM} -name %i $MORE\n\
        Restart=always\n";
    let [line] = &CommandLine::all(unit)[..] else { panic!() };
    assert_eq!((line.smp().0.vcpus, line.options.len()), (4, 3));
    let value = |at: usize| line.options[at].value.as_ref().unwrap().text.clone();
    assert_eq!((value(1), value(2)), ("2G".to_owned(), "%i".to_owned()));
    let unresolved: Vec<&str> = line.unresolved.iter().map(|word| word.text.as_str()).collect();
    assert_eq!(unresolved, ["%i", "$MORE"]);
}
