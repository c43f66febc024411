//! Captures of a QEMU that is played, and that fails in every way.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use super::*;

/// A stream with one device.
fn stream() -> Vec<u8> {
    let text = json!({ "page_size": 4096, "devices": [{ "name": "timer", "instance_id": 0,
        "vmsd_name": "timer", "version": 2,
        "fields": [{ "name": "ticks", "type": "int64", "size": 8 }] }] })
    .to_string();
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    let section = b"\x04\0\0\0\x01\x05timer\0\0\0\0\0\0\0\x02";
    let footer = b"\x7e\0\0\0\x01\0\x06";
    [b"QEVM\0\0\0\x03", &section[..], &[7; 8], footer, &length, text.as_bytes()].concat()
}

/// How the played QEMU fails.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    MigrateRefused,
    StreamCut,
    StreamNeverEnds,
    NotAStream,
    DumpRefused,
    DumpGivenUp,
    DumpNeverEnds,
    /// `cont` is refused so often, as while a dump is put away.
    ContRefused(u32),
    Gone,
}

/// A QEMU that is played: what it was asked, and whether its guest runs.
#[derive(Debug, Default)]
struct PlayedQemu {
    fault: Fault,
    runs: bool,
    asked: Vec<String>,
    files: BTreeMap<String, OwnedFd>,
    kept: Vec<OwnedFd>,
    migration: &'static str,
    bandwidth: u64,
    xbzrle: bool,
    cont_refused: u32,
    cancel: Cancel,
}

impl PlayedQemu {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            runs: true,
            migration: "none",
            bandwidth: 77,
            xbzrle: true,
            ..Self::default()
        }
    }

    fn write(&mut self, name: &str, bytes: &[u8], ends: bool) {
        let mut file = File::from(self.files.remove(name).expect("it was given"));
        file.write_all(bytes).unwrap();
        if !ends {
            self.kept.push(file.into());
        }
    }
}

impl Qmp for PlayedQemu {
    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, MonitorError> {
        self.asked.push(command.to_owned());
        let refused = |detail: &str| {
            let (command, detail) = (command.to_owned(), detail.to_owned());
            Err(MonitorError::Refused { command, detail })
        };
        match command {
            "query-version" => {
                return Ok(json!({ "qemu": { "major": 7, "minor": 2, "micro": 0 } }));
            }
            "query-kvm" => return Ok(json!({ "present": true, "enabled": true })),
            "query-status" => return Ok(json!({ "running": self.runs })),
            "query-migrate" if self.fault == Fault::Gone && self.migration == "active" => {
                let (path, command) = ("qmp".into(), command.to_owned());
                return Err(MonitorError::Silent { path, command });
            }
            "query-migrate" => return Ok(json!({ "status": self.migration, "downtime": 3 })),
            "query-migrate-capabilities" => {
                return Ok(json!([{ "capability": "xbzrle", "state": self.xbzrle },
                    { "capability": "events", "state": true }]));
            }
            "migrate-set-capabilities" => {
                self.xbzrle = arguments["capabilities"][0]["state"].as_bool().unwrap();
                assert_eq!(arguments["capabilities"].as_array().unwrap().len(), 1);
            }
            "query-migrate-parameters" => return Ok(json!({ "max-bandwidth": self.bandwidth })),
            "migrate-set-parameters" => {
                self.bandwidth = arguments["max-bandwidth"].as_u64().unwrap();
            }
            "migrate" => {
                if self.fault == Fault::MigrateRefused {
                    return refused("State blocked by non-migratable device 'nvme'");
                }
                assert!(!self.xbzrle && self.bandwidth > 1 << 30);
                let bytes = stream();
                match self.fault {
                    Fault::StreamCut => {
                        self.write("vmlab-state", &bytes[..20], true);
                        self.migration = "failed";
                    }
                    Fault::StreamNeverEnds | Fault::Gone => {
                        self.write("vmlab-state", &bytes[..20], false);
                        self.migration = "active";
                        self.cancel.cancel();
                    }
                    Fault::NotAStream => {
                        self.write("vmlab-state", b"something else", false);
                        self.migration = "active";
                    }
                    _ => {
                        self.write("vmlab-state", &bytes, true);
                        (self.migration, self.runs) = ("completed", false);
                    }
                }
            }
            "migrate_cancel" => {
                self.migration = "cancelled";
                self.kept.clear();
            }
            "dump-guest-memory" => {
                self.runs = false;
                if self.fault == Fault::DumpRefused {
                    return refused("this feature or command is not currently supported");
                }
                let bytes = [b"\x7fELF".as_slice(), &[0; 10_000]].concat();
                let ends = self.fault != Fault::DumpNeverEnds;
                self.write("vmlab-core", &bytes, ends);
                if !ends {
                    self.cancel.cancel();
                }
            }
            "query-dump" => {
                let failed = self.fault == Fault::DumpGivenUp;
                return Ok(json!({ "status": if failed { "failed" } else { "completed" } }));
            }
            "cont" => {
                if let Fault::ContRefused(times) = self.fault
                    && self.cont_refused < times
                {
                    self.cont_refused += 1;
                    return refused("There is a dump in process, please wait.");
                }
                self.runs = true;
            }
            "stop" => self.runs = false,
            "query-name" | "closefd" | "quit" => {}
            other => panic!("{other}"),
        }
        Ok(json!({}))
    }

    fn give(&mut self, name: &str, fd: OwnedFd) -> Result<(), MonitorError> {
        self.files.insert(name.to_owned(), fd);
        Ok(())
    }

    fn stood_still_us(&mut self) -> Option<u64> {
        None
    }
}

fn run(fault: Fault, with_core: bool) -> (Result<CaptureResult, CaptureError>, PlayedQemu, File) {
    let core = tempfile::tempfile().unwrap();
    let mut played = PlayedQemu::new(fault);
    let cancel = played.cancel.clone();
    let options = CaptureOptions {
        devices: true,
        stream: None,
        core: with_core.then_some(&core),
        live_limit: Duration::from_secs(1000),
        limit: None,
        end: false,
    };
    let captured = capture(&mut played, options, &cancel);
    (captured, played, core)
}

/// The guest runs, and all is set as it was.
fn is_as_before(played: &PlayedQemu) {
    assert!(played.runs, "{:?}", played.asked);
    assert!(played.xbzrle && played.bandwidth == 77, "{played:?}");
}

#[test]
fn devices_and_core_are_of_one_stop() {
    let (captured, played, core) = run(Fault::None, true);
    let captured = captured.unwrap();
    is_as_before(&played);
    assert_eq!(captured.state.unwrap().devices[0].name, "timer");
    assert_eq!(captured.core, Some(Ok(10_004)));
    assert_eq!(core.metadata().unwrap().len(), 10_004);
    assert_eq!((captured.qemu.as_str(), captured.accel), ("7.2.0", Accel::Kvm));
    // What QEMU tells of its own stop, and what came after.
    assert!(captured.stopped_s.unwrap() >= 0.003 && !captured.by_events);
    let order: Vec<&str> = played
        .asked
        .iter()
        .map(String::as_str)
        .filter(|command| ["migrate", "dump-guest-memory", "cont", "stop"].contains(command))
        .collect();
    assert_eq!(order, ["migrate", "dump-guest-memory", "cont"]);
}

#[test]
fn a_qemu_without_cores_tells_its_devices() {
    for (fault, part) in
        [(Fault::DumpRefused, "not currently supported"), (Fault::DumpGivenUp, "gave it up")]
    {
        let (captured, played, _) = run(fault, true);
        let captured = captured.unwrap();
        is_as_before(&played);
        assert!(captured.core.unwrap().unwrap_err().contains(part));
        assert!(captured.state.is_some());
    }
}

#[test]
fn the_guest_goes_on_whatever_happens() {
    for (fault, part) in [
        (Fault::MigrateRefused, "non-migratable device 'nvme' - such a VM's memory"),
        (Fault::StreamCut, "can't tell its devices' state: failed"),
        (Fault::StreamNeverEnds, "Interrupted"),
        (Fault::NotAStream, "no migration stream"),
        (Fault::DumpNeverEnds, "Interrupted"),
    ] {
        let (captured, played, _) = run(fault, true);
        let error = captured.unwrap_err().to_string();
        assert!(error.contains(part), "{fault:?}: {error}");
        is_as_before(&played);
    }
    let (captured, played, _) = run(Fault::ContRefused(3), true);
    captured.unwrap();
    is_as_before(&played);
}

#[test]
fn a_qemu_that_ends_is_said() {
    let (captured, _, _) = run(Fault::Gone, false);
    let error = captured.unwrap_err().to_string();
    assert!(error.contains("not seen to go on") && error.contains("Interrupted"), "{error}");
}

#[test]
fn a_guest_that_stood_still_does_so_afterwards() {
    let mut played = PlayedQemu { runs: false, ..PlayedQemu::new(Fault::None) };
    let options = CaptureOptions {
        devices: true,
        stream: None,
        core: None,
        live_limit: Duration::ZERO,
        limit: None,
        end: false,
    };
    let captured = capture(&mut played, options, &Cancel::new()).unwrap();
    assert!(!played.runs && captured.stopped_s.is_none());
    assert!(captured.warnings[0].contains("has to go on"), "{:?}", captured.warnings);
    assert!(!played.asked.iter().any(|command| command == "cont" || command == "stop"));
}

#[test]
fn a_stream_that_takes_too_long_is_given_up() {
    let mut played = PlayedQemu::new(Fault::StreamNeverEnds);
    let options = CaptureOptions {
        devices: true,
        stream: None,
        core: None,
        live_limit: Duration::ZERO,
        limit: Some(Duration::ZERO),
        end: false,
    };
    // Nobody interrupts it.
    let error = capture(&mut played, options, &Cancel::new()).unwrap_err();
    assert!(matches!(error, CaptureError::Slow(_)), "{error}");
    is_as_before(&played);
}

#[test]
fn a_capture_waits_for_nobody_elses_migration() {
    let mut played = PlayedQemu { migration: "active", ..PlayedQemu::new(Fault::None) };
    let options = CaptureOptions {
        devices: true,
        stream: None,
        core: None,
        live_limit: Duration::ZERO,
        limit: None,
        end: false,
    };
    let error = capture(&mut played, options, &Cancel::new()).unwrap_err();
    assert!(matches!(error, CaptureError::Busy(_)), "{error}");
    assert!(!played.asked.iter().any(|command| command == "migrate_cancel"));
}
