//! Traffic of one row through a switch in this process, for profilers (see
//! `bench/switch_stages`): a number of frames, not a time.

use vswitch::frontend::Traffic;
use vswitch::{PortConfig, Switch, SwitchConfig};

use crate::machine::{self, Pcpus};
use crate::rows;
use crate::trial::{GREETING, connect};

/// `drive ROW FRAMES`: prints how many frames came, and in how many bursts.
pub(crate) fn drive(mut args: impl Iterator<Item = String>) -> Result<bool, String> {
    let usage = "drive ROW FRAMES";
    let (Some(word), Some(frames)) = (args.next(), args.next()) else { return Err(usage.into()) };
    let frames: u64 = frames.parse().map_err(|error| format!("{usage}: {frames}: {error}"))?;
    let row = rows::all().into_iter().find(|row| row.name.contains(&word));
    let row = row.ok_or_else(|| format!("{word} is in no row's name"))?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = |port: usize| folder.path().join(format!("p{port}"));
    let ports = (0..row.ports).map(|port| {
        PortConfig::parse(&path(port).display().to_string()).map_err(|error| error.to_string())
    });
    let mut config = SwitchConfig::new(ports.collect::<Result<_, _>>()?);
    // Profilers make calls that a switch does not.
    config.sandbox = false;
    let pcpus = Pcpus::find()?;
    config.pcpus = vec![u32::try_from(pcpus.switch).map_err(|error| error.to_string())?];
    let switch = Switch::start(&config).map_err(|error| error.to_string())?;
    machine::pin(pcpus.generator).map_err(|error| error.to_string())?;
    let ends = (0..row.ports).map(|port| connect(&path(port), row.options));
    let mut traffic = Traffic::new(ends.collect::<Result<_, _>>()?, row.plan.clone());
    traffic.greet(GREETING)?;
    let began = traffic.tally().received;
    traffic.run(|tally| tally.received - began >= frames);
    let came = traffic.tally().received - began;
    drop(traffic);
    let vswitch::ControlReply::Status(status) = switch.ask(vswitch::Question::Status) else {
        return Err("the switch does not say how it is".to_owned());
    };
    let bursts: u64 = status.threads.iter().map(|thread| thread.counts.bursts).sum();
    println!("{}: {came} frames in {bursts} bursts", row.name);
    Ok(true)
}
