//! Runs seeds, and makes failing lists of steps short.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::action::{Step, are_large};
use crate::gateway::Scale;
use crate::world::{Control, Tally, World};

/// Steps of one run.
pub const STEPS: usize = 220;
/// Runs that shrinking may take.
const SHRINK_RUNS_MAX: usize = 1500;

/// Where and why a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub at: usize,
    pub what: String,
}

/// Carries out the steps.
pub fn run(steps: &[Step], control: Control) -> Result<Tally, Failure> {
    let at = std::cell::Cell::new(0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let scale = if are_large(steps) { Scale::Large } else { Scale::Small };
        let mut world = World::new(scale, control)?;
        for (n, step) in steps.iter().enumerate() {
            at.set(n);
            world.step(n, step)?;
        }
        at.set(steps.len());
        world.finish()?;
        Ok(world.tally)
    }));
    match result {
        Ok(Ok(tally)) => Ok(tally),
        Ok(Err(what)) => Err(Failure { at: at.get(), what }),
        Err(panic) => Err(Failure { at: at.get(), what: format!("panic: {}", message(&panic)) }),
    }
}

fn message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?").to_owned()
}

/// Leaves out steps as long as the run still fails.
pub fn shrink(mut steps: Vec<Step>, control: Control) -> (Vec<Step>, Failure) {
    let mut failure = run(&steps, control).expect_err("it failed before");
    steps.truncate(failure.at + 1);
    let mut runs = 0;
    let mut size = steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut changed = false;
        while at < steps.len() && runs < SHRINK_RUNS_MAX {
            let mut shorter = steps.clone();
            shorter.drain(at..(at + size).min(shorter.len()));
            runs += 1;
            match run(&shorter, control) {
                Err(found) => {
                    shorter.truncate(found.at + 1);
                    (steps, failure, changed) = (shorter, found, true);
                }
                Ok(_) => at += size,
            }
        }
        if runs >= SHRINK_RUNS_MAX || (size == 1 && !changed) {
            return (steps, failure);
        }
        size = (size / 2).max(1);
    }
}

/// Runs the steps of a seed; a failure is shrunk and told.
pub fn seed(seed: u64, list: Vec<Step>, control: Control) -> Result<Tally, String> {
    run(&list, control).map_err(|first| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let (short, failure) = shrink(list, control);
        std::panic::set_hook(hook);
        let lines: Vec<String> = short.iter().map(|step| format!("    {step:?}")).collect();
        format!(
            "seed {seed}, step {}: {}\nshrunk to {} steps, which fail with: {}\n{}",
            first.at,
            first.what,
            short.len(),
            failure.what,
            lines.join("\n")
        )
    })
}
