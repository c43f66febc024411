//! What the guest is to do, as words of the kernel's command line.
//!
//! `vmlab-thin=1 apic=x2apic shake=on mmio=0xfed00000 run=cpuid:1000:100,call:200:20`
//!
//! With `orders=on` the guest then reads more of them from its serial line, one list
//! of items a line, until its VM is ended. `calls=` and `wait=` say how a program in it
//! calls and waits.
//!
//! For tests there is `provoke=stack|null|opcode|panic|hang|spin` beside these.

use core::fmt;

use crate::FORMAT_VERSION;
use crate::digits::number;
use crate::operation::{Apic, Calls, MAX_IO_BYTES, MAX_N, Operation, Wait};

/// One operation of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// What to do.
    pub operation: Operation,
    /// Samples, 1 to [`MAX_N`].
    pub n: u32,
    /// Samples before them that are thrown away, at most [`MAX_N`].
    pub warmup: u32,
    /// Operations a sample.
    pub batch: u32,
    /// How much each does, see [`Operation::default_work`]; else 0.
    pub work: u32,
}

impl Item {
    /// `n` samples of an operation as it is.
    #[must_use]
    pub fn new(operation: Operation, n: u32, warmup: u32) -> Self {
        let (batch, work) = (operation.batch(), operation.default_work().unwrap_or(0));
        Self { operation, n, warmup, batch, work }
    }

    /// One sample of so many operations that do so much each; for those of which a
    /// plan can say that.
    #[must_use]
    pub fn once(operation: Operation, batch: u32, work: u32) -> Self {
        Self { operation, n: 1, warmup: 0, batch, work }
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let operation = Operation::from_name(parts.next()?)?;
        let n = number::<u32>(parts.next()?)?;
        let warmup = number::<u32>(parts.next()?)?;
        let mut item = Self::new(operation, n, warmup);
        if let Some(batch) = parts.next() {
            operation.default_work()?;
            item.batch = number::<u32>(batch)?;
            item.work = number::<u32>(parts.next()?)?;
        }
        let work_is_fine = operation != Operation::NullIo || item.work <= MAX_IO_BYTES;
        let within = (1..=MAX_N).contains(&n) && warmup <= MAX_N && parts.next().is_none();
        (within && item.batch > 0 && work_is_fine).then_some(item)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.operation.name(), self.n, self.warmup)?;
        if self.operation.default_work().is_some() {
            write!(f, ":{}:{}", self.batch, self.work)?;
        }
        Ok(())
    }
}

/// Reads a list of items, as in a plan's `run=` and on a line of orders.
///
/// # Errors
/// [`BadPlan::Empty`], [`BadPlan::Item`].
pub fn read_items(text: &str) -> Result<impl Iterator<Item = Item> + use<'_>, BadPlan> {
    if text.is_empty() {
        return Err(BadPlan::Empty);
    }
    if text.split(',').any(|item| Item::read(item).is_none()) {
        return Err(BadPlan::Item);
    }
    Ok(text.split(',').filter_map(Item::read))
}

/// A failure that is wanted, so that what is made of it can be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFault {
    /// The stack runs over.
    Stack,
    /// Address 0 is written.
    Null,
    /// An instruction that is none.
    Opcode,
    /// The guest's own program fails.
    Panic,
    /// The first operation does not end: the vCPU halts...
    Hang,
    /// ...or executes one instruction for ever.
    Spin,
}

impl InjectedFault {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Stack, "stack"),
        (Self::Null, "null"),
        (Self::Opcode, "opcode"),
        (Self::Panic, "panic"),
        (Self::Hang, "hang"),
        (Self::Spin, "spin"),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// A plan; the items borrow from the command line, as the guest has no heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan<'a> {
    /// The interrupt controller's mode; the best that is there, if nobody says.
    pub apic: Option<Apic>,
    /// Whether the guest waits for a byte before each operation.
    pub handshake: bool,
    /// The address of a 32-bit register of a device in QEMU, for
    /// [`Operation::MmioQemu`].
    pub mmio: Option<u32>,
    /// What goes wrong in the first operation.
    pub provoked: Option<InjectedFault>,
    /// Whether more items come over the serial line.
    pub orders: bool,
    /// How calls reach the null device.
    pub calls: Calls,
    /// How a vCPU waits for another.
    pub wait: Wait,
    items: &'a str,
}

/// Why a command line is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadPlan {
    /// There is no `vmlab-thin=1`.
    Version,
    /// A word that is none of the plan's.
    Word,
    /// An item that is not `NAME:N:WARMUP`, or out of bounds.
    Item,
    /// There is nothing to do.
    Empty,
    /// The local APIC has no such mode here.
    Apic,
}

impl BadPlan {
    /// As the guest's record has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "plan-version",
            Self::Word => "plan-word",
            Self::Item => "plan-item",
            Self::Empty => "plan-empty",
            Self::Apic => "plan-apic",
        }
    }

    /// That of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Version, Self::Word, Self::Item, Self::Empty, Self::Apic];
        all.into_iter().find(|bad| bad.name() == name)
    }
}

impl<'a> Plan<'a> {
    /// Reads a command line. Words that hypervisors add are passed over.
    ///
    /// # Errors
    /// [`BadPlan`].
    pub fn read(cmdline: &'a str) -> Result<Self, BadPlan> {
        let mut plan = Self {
            apic: None,
            handshake: false,
            mmio: None,
            provoked: None,
            orders: false,
            calls: Calls::default(),
            wait: Wait::default(),
            items: "",
        };
        let mut versioned = false;
        for word in cmdline.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "vmlab-thin" if number(value) == Some(FORMAT_VERSION) => versioned = true,
                "vmlab-thin" => return Err(BadPlan::Version),
                "apic" => plan.apic = Some(Apic::from_name(value).ok_or(BadPlan::Word)?),
                "shake" if value == "on" => plan.handshake = true,
                "orders" if value == "on" => plan.orders = true,
                "calls" => plan.calls = Calls::from_name(value).ok_or(BadPlan::Word)?,
                "wait" => plan.wait = Wait::from_name(value).ok_or(BadPlan::Word)?,
                "mmio" => {
                    let address =
                        value.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
                    plan.mmio = Some(address.filter(|at| at % 4 == 0).ok_or(BadPlan::Word)?);
                }
                "provoke" => {
                    plan.provoked = Some(InjectedFault::from_name(value).ok_or(BadPlan::Word)?);
                }
                "run" => plan.items = value,
                // QEMU's microvm tells of its devices so.
                "virtio_mmio.device" => {}
                _ => return Err(BadPlan::Word),
            }
        }
        if !versioned {
            return Err(BadPlan::Version);
        }
        match read_items(plan.items).map(drop) {
            Err(BadPlan::Empty) if plan.orders => Ok(plan),
            read => read.map(|()| plan),
        }
    }

    /// What to do, in order.
    pub fn items(&self) -> impl Iterator<Item = Item> + use<'a> {
        read_items(self.items).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read() {
        let text = "vmlab-thin=1 apic=x2apic shake=on mmio=0xfed00000 virtio_mmio.device=5@6:7 \
                    run=cpuid:1000:100,call:1:0";
        let plan = Plan::read(text).unwrap();
        assert_eq!(
            (plan.apic, plan.handshake, plan.mmio),
            (Some(Apic::X2apic), true, Some(0xfed0_0000))
        );
        let items: Vec<String> = plan.items().map(|item| item.to_string()).collect();
        assert_eq!(items, ["cpuid:1000:100", "call:1:0"]);
        let plan = Plan::read("vmlab-thin=1 orders=on calls=ring3 wait=mwait").unwrap();
        assert_eq!((plan.orders, plan.calls, plan.wait), (true, Calls::Ring3, Wait::Mwait));
        assert_eq!(plan.items().count(), 0);
        let items: Vec<String> = read_items("items:1:0:800000:2000,null-io:3:1")
            .unwrap()
            .map(|item| item.to_string())
            .collect();
        assert_eq!(items, ["items:1:0:800000:2000", "null-io:3:1:1000:40"]);
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        let check = |text: &str, why: BadPlan| assert_eq!(Plan::read(text), Err(why), "{text}");
        check("", BadPlan::Version);
        check("run=cpuid:1:0", BadPlan::Version);
        check("vmlab-thin=2 run=cpuid:1:0", BadPlan::Version);
        check("vmlab-thin=1", BadPlan::Empty);
        check("vmlab-thin=1 quiet run=cpuid:1:0", BadPlan::Word);
        check("vmlab-thin=1 provoke=all run=cpuid:1:0", BadPlan::Word);
        check("vmlab-thin=1 wait=long run=cpuid:1:0", BadPlan::Word);
        check("vmlab-thin=1 calls=ring1 run=cpuid:1:0", BadPlan::Word);
        check("vmlab-thin=1 orders=on run=cpuid", BadPlan::Item);
        check("vmlab-thin=1 mmio=0xfed00001 run=cpuid:1:0", BadPlan::Word);
        for item in [
            "cpuid",
            "cpuid:1",
            "cpuid:0:0",
            "cpuid:65537:0",
            "cpuid:1000000000000000000:0",
            "x:1:1",
            "cpuid:1:65537",
            "cpuid:1:0:0",
            "cpuid:+1:0",
            "cpuid:1:0,",
            ",",
            "cpuid:1:0:5:5",
            "items:1:0:5",
            "items:1:0:0:5",
            "items:1:0:5:5:5",
            "null-io:1:0:5:65537",
        ] {
            check(&format!("vmlab-thin=1 run={item}"), BadPlan::Item);
        }
    }
}
