//! What the guest says on its serial line: a record a line, with a number and a
//! checksum, so that what is lost, cut or made up is seen.
//!
//! `@done seq=4 op=cpuid n=1000 ... #1f2e3d4c`

use core::fmt::{self, Write};

use crate::crc::crc32;
use crate::digits::number;
use crate::operation::{Apic, Operation};
use crate::{BadPlan, FORMAT_VERSION};

/// Longest line of a record with its end, bytes.
pub const LINE_BYTES: usize = 512;

/// How the guest knows the clock's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSource {
    /// CPUID leaf 0x40000010, in which a hypervisor says it.
    HypervisorLeaf,
    /// CPUID leaf 0x15.
    TscLeaf,
    /// KVM's clock page.
    Pvclock,
    /// Measured against the interval timer (i8254).
    Timer,
    /// CNTFRQ_EL0.
    Cntfrq,
    /// It does not.
    Unknown,
}

/// Why an operation was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The VM has too few vCPUs.
    TooFewVcpus,
    /// The processor that the guest sees cannot do it.
    NotExposed,
    /// The instruction raised an exception.
    Faulted,
    /// No device was named that could be asked.
    NoDevice,
    /// There is not enough memory.
    NoMemory,
    /// It did not come to an end; the guest gave it up.
    NoAnswer,
    /// It ended, and what it did was not what it should have done.
    Wrong,
    /// This architecture has no such thing.
    OtherArch,
}

names! { ClockSource:
    HypervisorLeaf "hypervisor-leaf", TscLeaf "tsc-leaf", Pvclock "pvclock", Timer "timer",
    Cntfrq "cntfrq", Unknown "unknown",
}
names! { Skip:
    TooFewVcpus "too-few-vcpus", NotExposed "not-exposed", Faulted "faulted",
    NoDevice "no-device", NoMemory "no-memory", NoAnswer "no-answer", Wrong "wrong",
    OtherArch "other-arch",
}

/// What the guest found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// vCPUs that firmware's tables name.
    pub vcpus: u32,
    /// Those that started.
    pub started: u32,
    /// The interrupt controller's mode.
    pub apic: Apic,
    /// The clock's rate, kHz; 0 if unknown.
    pub tsc_khz: u64,
    /// How it is known.
    pub clock: ClockSource,
    /// True if the timer takes a deadline (TSC-deadline; CNTV_CVAL_EL0).
    pub deadline: bool,
    /// True if CPUID or SMCCC has KVM's signature.
    pub kvm: bool,
    /// The timer's interrupt; none on x86-64, where its number is the guest's own choice.
    pub timer_irq: Option<TimerIrq>,
}

/// The interrupt of arm64's virtual timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerIrq {
    /// Its number (INTID).
    pub number: u32,
    /// True if the device tree or ACPI's GTDT names it; it is the architecture's else
    /// ([`acpi::VIRTUAL_TIMER`](crate::acpi::VIRTUAL_TIMER)).
    pub is_told: bool,
}

/// An operation that was measured. Times are in cycles of the TSC, a sample being
/// `batch` operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Which.
    pub operation: Operation,
    /// Samples.
    pub n: u32,
    /// Samples before them that were thrown away.
    pub warmup: u32,
    /// Operations a sample.
    pub batch: u32,
    /// The least.
    pub min: u64,
    /// The median: the lower one of two.
    pub median: u64,
    /// The 99th percentile, nearest rank.
    pub p99: u64,
    /// All samples together.
    pub sum: u64,
    /// Interrupts that the guest sent during the samples.
    pub ipis: u64,
    /// HLTs that it executed.
    pub hlts: u64,
}

/// An exception that the guest did not expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Number of the exception; on arm64 64 and the class (ESR_EL1.EC), or
    /// [`Fault::SERROR`].
    pub vector: u8,
    /// Its error code, 0 for those without one; on arm64 ESR_EL1.
    pub code: u64,
    /// Where.
    pub rip: u64,
    /// The stack pointer there.
    pub rsp: u64,
    /// The address, for page faults; on arm64 FAR_EL1.
    pub cr2: u64,
    /// On which vCPU.
    pub vcpu: u32,
}

impl Fault {
    /// Where arm64's classes of synchronous exceptions begin.
    pub const SYNCHRONOUS: u8 = 64;
    /// An SError of arm64.
    pub const SERROR: u8 = 128;
}

/// A line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The first.
    Hello(Hello),
    /// The operation is warm, and the guest waits for a byte.
    Ready(Operation),
    /// It was measured.
    Done(Measurement),
    /// It was not.
    Skipped(Operation, Skip),
    /// The command line is no plan.
    Refused(BadPlan),
    /// An exception; the guest ends.
    Fault(Fault),
    /// The guest's own program failed; it ends.
    Panic,
    /// The last: all was done.
    Bye,
}

/// Error type for [`read_record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadRecord {
    /// It does not begin with `@` or has no checksum.
    NoRecord,
    /// The checksum is another one.
    Checksum,
    /// It was written by another version.
    Version,
    /// A field is missing or makes no sense.
    Field,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRecord => "it is no record",
            Self::Checksum => "its checksum is wrong",
            Self::Version => "another version of the guest wrote it",
            Self::Field => "a field is missing or makes no sense",
        })
    }
}

/// A line under way.
struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Writes the record number `seq` as one line with its end.
///
/// # Errors
/// Those of `out`.
pub fn write_record(out: &mut dyn Write, seq: u32, record: &Record) -> fmt::Result {
    let mut line = Line { bytes: [0; LINE_BYTES], length: 0 };
    write_fields(&mut line, seq, record)?;
    let text = core::str::from_utf8(&line.bytes[..line.length]).map_err(|_| fmt::Error)?;
    writeln!(out, "@{text} #{:08x}", crc32(text.as_bytes()))
}

fn write_fields(line: &mut Line, seq: u32, record: &Record) -> fmt::Result {
    match record {
        Record::Hello(hello) => {
            let Hello { vcpus, started, tsc_khz, .. } = hello;
            let (apic, clock) = (hello.apic.name(), hello.clock.name());
            let (deadline, kvm) = (u8::from(hello.deadline), u8::from(hello.kvm));
            write!(
                line,
                "hello seq={seq} version={FORMAT_VERSION} vcpus={vcpus} started={started} \
                 apic={apic} tsc_khz={tsc_khz} clock={clock} deadline={deadline} kvm={kvm}"
            )?;
            let Some(TimerIrq { number, is_told }) = hello.timer_irq else { return Ok(()) };
            write!(line, " timer_irq={number} timer_told={}", u8::from(is_told))
        }
        Record::Ready(operation) => write!(line, "ready seq={seq} op={}", operation.name()),
        Record::Done(done) => {
            let Measurement { n, warmup, batch, min, median, p99, sum, ipis, hlts, .. } = done;
            let name = done.operation.name();
            write!(
                line,
                "done seq={seq} op={name} n={n} warmup={warmup} batch={batch} min={min} \
                 median={median} p99={p99} sum={sum} ipis={ipis} hlts={hlts}"
            )
        }
        Record::Skipped(operation, why) => {
            write!(line, "skipped seq={seq} op={} why={}", operation.name(), why.name())
        }
        Record::Refused(why) => write!(line, "refused seq={seq} why={}", why.name()),
        Record::Fault(fault) => {
            let Fault { vector, code, rip, rsp, cr2, vcpu } = fault;
            write!(
                line,
                "fault seq={seq} vector={vector} code={code} rip={rip} rsp={rsp} cr2={cr2} \
                 vcpu={vcpu}"
            )
        }
        Record::Panic => write!(line, "panic seq={seq}"),
        Record::Bye => write!(line, "bye seq={seq}"),
    }
}

/// Reads a line: the record's number and the record.
///
/// # Errors
/// [`BadRecord`]. A record whose numbers contradict each other is bad too: the line
/// comes from a guest, which may say anything.
pub fn read_record(line: &str) -> Result<(u32, Record), BadRecord> {
    let line = line.trim_end_matches(['\r', '\n']);
    let body = line.strip_prefix('@').ok_or(BadRecord::NoRecord)?;
    let (text, sum) = body.rsplit_once(" #").ok_or(BadRecord::NoRecord)?;
    if sum.len() != 8 || u32::from_str_radix(sum, 16).ok() != Some(crc32(text.as_bytes())) {
        return Err(BadRecord::Checksum);
    }
    let (kind, fields) = text.split_once(' ').ok_or(BadRecord::Field)?;
    let field = |key: &str| {
        fields
            .split(' ')
            .find_map(|field| field.split_once('=').filter(|(name, _)| *name == key))
            .map(|(_, value)| value)
            .ok_or(BadRecord::Field)
    };
    let wide = |key: &str| number::<u64>(field(key)?).ok_or(BadRecord::Field);
    let narrow = |key: &str| number::<u32>(field(key)?).ok_or(BadRecord::Field);
    let flag = |key: &str| Ok(narrow(key)? == 1);
    let operation = || Operation::from_name(field("op")?).ok_or(BadRecord::Field);
    let record = match kind {
        "hello" => {
            if narrow("version")? != FORMAT_VERSION {
                return Err(BadRecord::Version);
            }
            Record::Hello(Hello {
                vcpus: narrow("vcpus")?,
                started: narrow("started")?,
                apic: Apic::from_name(field("apic")?).ok_or(BadRecord::Field)?,
                tsc_khz: wide("tsc_khz")?,
                clock: ClockSource::from_name(field("clock")?).ok_or(BadRecord::Field)?,
                deadline: flag("deadline")?,
                kvm: flag("kvm")?,
                timer_irq: match field("timer_irq") {
                    Ok(_) => Some(TimerIrq {
                        number: narrow("timer_irq")?,
                        is_told: flag("timer_told")?,
                    }),
                    Err(_) => None,
                },
            })
        }
        "ready" => Record::Ready(operation()?),
        "done" => {
            let done = Measurement {
                operation: operation()?,
                n: narrow("n")?,
                warmup: narrow("warmup")?,
                batch: narrow("batch")?,
                min: wide("min")?,
                median: wide("median")?,
                p99: wide("p99")?,
                sum: wide("sum")?,
                ipis: wide("ipis")?,
                hlts: wide("hlts")?,
            };
            let ordered = done.min <= done.median && done.median <= done.p99;
            if done.n == 0 || done.batch == 0 || !ordered || done.p99 > done.sum {
                return Err(BadRecord::Field);
            }
            Record::Done(done)
        }
        "skipped" => {
            Record::Skipped(operation()?, Skip::from_name(field("why")?).ok_or(BadRecord::Field)?)
        }
        "refused" => Record::Refused(BadPlan::from_name(field("why")?).ok_or(BadRecord::Field)?),
        "fault" => Record::Fault(Fault {
            vector: u8::try_from(narrow("vector")?).map_err(|_| BadRecord::Field)?,
            code: wide("code")?,
            rip: wide("rip")?,
            rsp: wide("rsp")?,
            cr2: wide("cr2")?,
            vcpu: narrow("vcpu")?,
        }),
        "panic" => Record::Panic,
        "bye" => Record::Bye,
        _ => return Err(BadRecord::Field),
    };
    Ok((narrow("seq")?, record))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn done() -> Measurement {
        Measurement {
            operation: Operation::Cpuid,
            n: u32::MAX,
            warmup: u32::MAX,
            batch: u32::MAX,
            min: u64::MAX - 2,
            median: u64::MAX - 1,
            p99: u64::MAX,
            sum: u64::MAX,
            ipis: u64::MAX,
            hlts: u64::MAX,
        }
    }

    fn all() -> Vec<Record> {
        let hello = Hello {
            vcpus: 2,
            started: 2,
            apic: Apic::X2apic,
            tsc_khz: 2_100_000,
            clock: ClockSource::Pvclock,
            deadline: true,
            kvm: false,
            timer_irq: None,
        };
        let timer_irq = Some(TimerIrq { number: 27, is_told: true });
        let fault = Fault { vector: 14, code: 2, rip: 3, rsp: 4, cr2: u64::MAX, vcpu: 1 };
        vec![
            Record::Hello(hello),
            Record::Hello(Hello { timer_irq, ..hello }),
            Record::Ready(Operation::SemLazy),
            Record::Done(done()),
            Record::Skipped(Operation::Hypercall, Skip::Faulted),
            Record::Refused(BadPlan::Item),
            Record::Fault(fault),
            Record::Panic,
            Record::Bye,
        ]
    }

    fn written(seq: u32, record: &Record) -> String {
        let mut text = String::new();
        write_record(&mut text, seq, record).unwrap();
        text
    }

    #[test]
    fn what_is_written_is_read() {
        for (seq, record) in (u32::MAX - 20..).zip(all()) {
            let line = written(seq, &record);
            assert!(line.len() <= LINE_BYTES && line.ends_with('\n'), "{line}");
            assert_eq!(read_record(&line), Ok((seq, record)), "{line}");
        }
    }

    #[test]
    fn lies_are_seen() {
        let line = written(3, &Record::Done(Measurement { sum: 0, ..done() }));
        assert_eq!(read_record(&line), Err(BadRecord::Field));
        let line = written(3, &Record::Done(Measurement { min: u64::MAX, ..done() }));
        assert_eq!(read_record(&line), Err(BadRecord::Field));
        assert_eq!(read_record("@bye seq=1 #00000000"), Err(BadRecord::Checksum));
        assert_eq!(read_record("@bye seq=1"), Err(BadRecord::NoRecord));
        assert_eq!(read_record("SeaBIOS (version 1.16.2)"), Err(BadRecord::NoRecord));
        let of = |text: &str| format!("@{text} #{:08x}", crc32(text.as_bytes()));
        assert_eq!(read_record(&of("hello seq=0 version=2")), Err(BadRecord::Version));
        assert_eq!(read_record(&of("bye")), Err(BadRecord::Field));
        let half = written(0, &all()[1]).replace(" timer_told=1", "");
        let (half, _) = half[1..].rsplit_once(" #").unwrap();
        assert_eq!(read_record(&of(half)), Err(BadRecord::Field));
        assert_eq!(read_record(&of("bye seq=-1")), Err(BadRecord::Field));
    }

    proptest! {
        #[test]
        fn no_changed_byte_goes_unseen(at in 0usize..1000, change in 1u8..=255, which in 0usize..9) {
            let line = written(7, &all()[which]);
            let mut bytes = line.trim_end().as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= change;
            if let Ok(text) = String::from_utf8(bytes) {
                // The checksum's own digits may change their case.
                let same = text.eq_ignore_ascii_case(line.trim_end());
                prop_assert!(read_record(&text).is_err() || same, "{}", text);
            }
        }

        #[test]
        fn any_text_is_survived(text in "@?[a-z =0-9#@]{0,80}") {
            let _ = read_record(&text);
        }
    }
}
