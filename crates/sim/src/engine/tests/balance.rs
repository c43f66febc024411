//! Who gets how much where more want to run than there are pCPUs, none of them idle.

use super::*;

/// VMs of one vCPU that compute, of these weights and free to run anywhere.
fn computing(kernel: SchedKernel, cores: u32, weights: &[u32]) -> SimModel {
    let mut model = free(host(1, cores, 1), kernel);
    let work = [Op::Work(Duration::Constant(100_000), WorkClass::COMPUTE), Op::Done(0)];
    for (index, weight) in weights.iter().enumerate() {
        let vm = vm(&format!("vm {index}"), &[0], 0, &work);
        model.vms.push(SimVm { weight: *weight, pins: Vec::new(), ..vm });
    }
    // What wakes now and then keeps turns and balances from falling into step.
    let burst = (Duration::Exponential(100_000), Duration::Exponential(20_000_000));
    model.host_tasks = vec![HostTask {
        name: "noise".to_owned(),
        pins: Vec::new(),
        weight: 1024,
        group: None,
        burst: Some(burst),
    }];
    model.duration_ns = 100_000_000_000;
    model
}

/// What each VM has of a pCPU.
fn shares(model: &SimModel) -> Vec<f64> {
    let outcome = run(model, || true).unwrap();
    outcome.vms.iter().map(|vm| vm.ran_ns as f64 / model.duration_ns as f64).collect()
}

/// Without balance between busy pCPUs one of three has a pCPU alone for ever. Since 5.5
/// which of two moves is chance, some 1500 times here.
#[test]
fn equal_vms_share_pcpus_that_are_all_busy() {
    for (kernel, name) in SchedKernel::ALL {
        // What wakes now and then takes half a percent.
        for (cores, vms, within) in [(2, 3, 0.02), (4, 6, 0.06)] {
            let equal = shares(&computing(kernel, cores, &vec![1024; vms]));
            let expected = f64::from(cores) / vms as f64;
            for share in &equal {
                assert!((share / expected - 1.0).abs() < within, "{name} {vms}: {equal:?}");
            }
        }
        let mut alone = computing(kernel, 2, &[1024; 3]);
        alone.mechanisms.balance = false;
        alone.duration_ns = 1_000_000_000;
        let most = shares(&alone).into_iter().fold(0.0, f64::max);
        assert!(most > 0.98, "{name}: it is the balance that shares");
    }
}

/// Of four on two pCPUs one has twice the weight: 0.8 of a pCPU, and 0.4 each of the others,
/// where whole tasks can be moved so. In 3.6 who moves is chance, so it is the mean of four runs.
#[test]
fn heavy_vms_have_more() {
    for (kernel, name) in SchedKernel::ALL {
        let mut heavy = [0.0; 4];
        for seed in 1..=4 {
            let mut model = computing(kernel, 2, &[2048, 1024, 1024, 1024]);
            model.seed = seed;
            for (mean, share) in heavy.iter_mut().zip(shares(&model)) {
                *mean += share / 4.0;
            }
        }
        assert!((heavy[0] / 0.8 - 1.0).abs() < 0.05, "{name}: {heavy:?}");
        assert!(
            heavy[1..].iter().all(|share| (share / 0.4 - 1.0).abs() < 0.05),
            "{name}: {heavy:?}"
        );
        // One that is as heavy as all others has a pCPU for itself.
        let whole = shares(&computing(kernel, 2, &[2048, 1024, 1024]));
        assert!(whole[0] > 0.97 && (0.48..0.52).contains(&whole[1]), "{name}: {whole:?}");
    }
}

/// Tasks that sleep, wake elsewhere and are pulled to idle CPUs: while they took their virtual
/// times along as they were, these doubled until they overflowed.
#[test]
fn virtual_times_stay_within_the_time() {
    let text = include_str!("../../../../../studies/sim/cpu-pm.toml");
    let scenario =
        crate::scenario::Scenario::parse("cpu-pm", text, |_| Err(String::new())).unwrap();
    for draw in 0..20 {
        for cell in &scenario.cells {
            let model = cell.draw(scenario.seed, draw);
            assert!(run(&model, || true).unwrap().meters[0].done > 0);
        }
    }
}
