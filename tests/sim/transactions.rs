//! A prepared transaction meets a crash at each of twelve points: three steps (preparing, committing, rolling back), each with four
//! points on its way to the disk. A program speaks STOMP to one gateway after another on the same simulated disk.
//!
//! `TIDEGATE_SIM_CRASHES` sets the crashes for each point, `TIDEGATE_SEED` the first seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::broker::api::ConnId;
use tidegate::net::hub::Output;
use tidegate::net::origin::{Origin, PeerAddress, Protocol};
use tidegate::store::simulation::{CutStyle, Sabotage, SimMedia};
use tidegate_stomp::{Command, DecodeLimits, Decoded, Version, decode_next};

use crate::gateway::{Gateway, Scale, Setting};
use crate::random::Random;
use crate::world::{SYSTEM_START, Tally, fresh};

/// Crashes for each point.
const CRASHES: u64 = 100;
/// Rounds after which a gateway must have come to rest.
const ROUNDS_MAX: u32 = 2_000;
/// Messages that the transaction may take.
const INPUTS_MAX: u64 = 6;
const SETTING: Setting = Setting { scale: Scale::Small, hold_millis: 0, long_transactions: true };
/// Operations of the medium within which the power fails while a batch is written: a write and a sync, mostly.
const WRITING_OPERATIONS: u64 = 4;
/// Writes of a checkpoint before which the power fails.
const FOLDING_WRITES: u64 = 24;
/// Messages that fill the ring until a checkpoint begins.
const FILLERS_MAX: u32 = 400;
const XID: &str = "xid-1";
/// Where the transaction's messages go.
const OUTPUTS: [&str; 3] = ["one", "two", "three"];
const DEAD: &str = "dead-letters";

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Prepare,
    Commit,
    RollBack,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The broker has done its part, the store has heard nothing.
    Heard,
    /// The power fails while the batch is written or synced.
    Writing,
    /// The batch is durable, and nobody has been told.
    Durable,
    /// The client has its receipt; the power fails while a checkpoint moves everything on.
    Answered,
}

const STEPS: [Step; 3] = [Step::Prepare, Step::Commit, Step::RollBack];
const PLACES: [Place; 4] = [Place::Heard, Place::Writing, Place::Durable, Place::Answered];

/// What has become of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It was never prepared.
    Gone,
    Prepared,
    Committed,
    RolledBack,
}

/// What may have become of it after a crash.
fn fates(step: Step, place: Place) -> Vec<Fate> {
    let (before, after) = match step {
        Step::Prepare => (Fate::Gone, Fate::Prepared),
        Step::Commit => (Fate::Prepared, Fate::Committed),
        Step::RollBack => (Fate::Prepared, Fate::RolledBack),
    };
    match place {
        Place::Heard => vec![before],
        Place::Writing => vec![before, after],
        Place::Durable | Place::Answered => vec![after],
    }
}

/// A frame from the gateway.
#[derive(Clone, Debug)]
struct Heard {
    command: Command,
    headers: BTreeMap<String, String>,
    body: String,
}

/// What the transaction consists of.
#[derive(Debug, Default)]
struct Plan {
    inputs: Vec<String>,
    /// Inputs that stay in their queue.
    rest: Vec<String>,
    taken: Vec<String>,
    refused: Vec<String>,
    /// By queue.
    sent: BTreeMap<&'static str, Vec<String>>,
}

/// One gateway after another on one disk, and what their connections have heard.
struct Site {
    media: Arc<SimMedia>,
    gateway: Option<Gateway>,
    heard: BTreeMap<ConnId, Vec<u8>>,
    random: Random,
}

impl Site {
    fn new(seed: u64) -> Self {
        let media = Arc::new(SimMedia::holding(fresh(Scale::Small)));
        let mut site = Self { media, gateway: None, heard: BTreeMap::new(), random: Random(seed) };
        site.start(0);
        site
    }

    fn gateway(&mut self) -> &mut Gateway {
        self.gateway.as_mut().expect("it was started")
    }

    /// Starts a gateway; the power fails during the first `cuts` openings.
    fn start(&mut self, cuts: u64) {
        for _ in 0..cuts {
            self.media.cut_power_after(1 + self.random.below(14));
            let seed = self.random.next();
            drop(Gateway::start(self.media.clone(), Sabotage::default(), SYSTEM_START, seed, SETTING));
            self.lose_power();
        }
        let seed = self.random.next();
        let started = Gateway::start(self.media.clone(), Sabotage::default(), SYSTEM_START, seed, SETTING);
        let (gateway, _) = started.unwrap_or_else(|_| panic!("the store can be opened"));
        self.heard.clear();
        self.gateway = Some(gateway);
        self.settle();
    }

    fn lose_power(&mut self) {
        let grain = *self.random.pick(&[512, 4096]);
        let style = CutStyle { grain, garbage: self.random.chance(2) };
        let random = &mut self.random;
        self.media = Arc::new(self.media.after_power_cut(style, &mut || random.next()));
    }

    /// The process is gone, killed or with the power, and the next one starts.
    fn crash(&mut self, by_power: bool) {
        let left = Arc::new(self.media.after_kill());
        if by_power {
            self.media.cut_power();
        }
        drop(self.gateway.take());
        if by_power {
            self.lose_power();
        } else {
            self.media = left;
        }
        let cuts = self.random.below(3);
        self.start(cuts);
    }

    /// What waits goes to the clients.
    fn write(&mut self) {
        let Some(gateway) = &mut self.gateway else { return };
        let now = gateway.now();
        while let Some(id) = gateway.hub.next_dirty() {
            let heard = self.heard.entry(id).or_default();
            loop {
                let before = heard.len();
                match gateway.hub.output(id) {
                    None => break,
                    Some(Output::Single(bytes)) => heard.extend_from_slice(bytes),
                    Some(Output::Many(slices)) => {
                        slices.iter().for_each(|part| heard.extend_from_slice(part))
                    }
                }
                gateway.hub.wrote(id, heard.len() - before, now);
            }
        }
        gateway.hub.finish_turn(now);
    }

    /// Everything is durable, told and read; a checkpoint that is due waits.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.gateway().mono += 1_000;
            self.gateway().submit();
            self.write();
            self.gateway().store.turn(true);
            self.gateway().store.serve_loads();
            self.gateway().hear_store();
            assert_eq!(self.gateway().failed, None);
            let gateway = self.gateway();
            if !gateway.hub.has_work() && !gateway.store.has_work() {
                return gateway.hub.broker().check();
            }
            if gateway.store.is_folding() {
                gateway.store.fold(None);
            }
        }
        panic!("the gateway comes to rest");
    }

    fn say(&mut self, id: ConnId, bytes: &str) {
        let mut rest = bytes.as_bytes();
        while !rest.is_empty() {
            let at = if self.random.chance(3) { 1 + self.random.below(rest.len() as u64) } else { u64::MAX };
            let (part, tail) = rest.split_at(usize::try_from(at).map_or(rest.len(), |at| at.min(rest.len())));
            let now = self.gateway().now();
            self.gateway().hub.received(id, part, now);
            rest = tail;
        }
    }

    /// What has arrived since the last call.
    fn hear(&mut self, id: ConnId) -> Vec<Heard> {
        let bytes = self.heard.remove(&id).unwrap_or_default();
        let (mut at, mut frames) = (0, vec![]);
        while at < bytes.len() {
            match decode_next(Version::V12, &bytes[at..], &DecodeLimits::UNBOUNDED) {
                Ok(Decoded::Gap { consumed }) => at += consumed,
                Ok(Decoded::Frame { frame, consumed }) => {
                    at += consumed;
                    let headers = frame.headers.iter();
                    frames.push(Heard {
                        command: frame.command,
                        headers: headers.map(|h| (h.name.into_owned(), h.value.into_owned())).collect(),
                        body: String::from_utf8_lossy(frame.body).into_owned(),
                    });
                }
                other => panic!("half a frame: {other:?}"),
            }
        }
        frames
    }

    fn connect(&mut self) -> ConnId {
        let now = self.gateway().now();
        let origin = Origin::plain(PeerAddress::Local);
        let id = self.gateway().hub.open(Protocol::Stomp, origin, now).expect("there is room");
        self.say(id, "STOMP\naccept-version:1.2\nhost:h\n\n\0");
        self.settle();
        let heard = self.hear(id);
        assert!(matches!(&heard[..], [Heard { command: Command::Connected, .. }]), "{heard:?}");
        id
    }

    fn lose(&mut self, id: ConnId) {
        let now = self.gateway().now();
        self.gateway().hub.lost(id, now);
        self.settle();
        self.gateway().hub.closed(id, now);
        self.settle();
    }

    /// Says something with the receipt `r`, and waits for it; `false`: it is an ERROR.
    fn ask(&mut self, id: ConnId, bytes: &str) -> bool {
        self.say(id, bytes);
        self.settle();
        let heard = self.hear(id);
        match heard.last().map(|frame| frame.command) {
            Some(Command::Receipt) => true,
            Some(Command::Error) => false,
            _ => panic!("neither a receipt nor an error: {heard:?}"),
        }
    }

    /// Everything in a queue, in the order in which a fresh consumer gets it.
    fn drain(&mut self, queue: &str) -> Vec<String> {
        let id = self.connect();
        self.say(id, &format!("SUBSCRIBE\nid:s\ndestination:/queue/{queue}\n\n\0"));
        self.settle();
        let bodies = self.hear(id).into_iter().map(|frame| frame.body).collect();
        self.lose(id);
        bodies
    }

    fn listed(&mut self) -> bool {
        let names = self.gateway().hub.broker().prepared_transactions().map(|status| status.xid);
        let names: Vec<_> = names.collect();
        assert!(names.is_empty() || *names == [XID.into()], "{names:?}");
        !names.is_empty()
    }

    /// A program has taken messages and begun a transaction with some of them, to be prepared.
    fn begin(&mut self) -> (ConnId, Plan) {
        let mut plan = Plan::default();
        let id = self.connect();
        for i in 0..2 + self.random.below(INPUTS_MAX - 1) {
            let body = self.body(&format!("in {i}"));
            assert!(self.ask(id, &format!("SEND\ndestination:/queue/in\nreceipt:r\n\n{body}\0")));
            plan.inputs.push(body);
        }
        self.say(id, "SUBSCRIBE\nid:s\ndestination:/queue/in\nack:client-individual\n\n\0");
        self.settle();
        let messages = self.hear(id);
        assert_eq!(
            messages.iter().map(|frame| &frame.body).collect::<Vec<_>>(),
            plan.inputs.iter().collect::<Vec<_>>()
        );
        self.say(id, &format!("BEGIN\ntransaction:t\nxid:{XID}\n\n\0"));
        for message in messages {
            self.act(id, &mut plan, &message);
        }
        self.settle();
        assert!(self.hear(id).is_empty(), "no fault, and no receipt");
        (id, plan)
    }

    /// A body of any length, so that records end anywhere.
    fn body(&mut self, name: &str) -> String {
        let len = self.random.below(600) as usize;
        format!("{name} {}", "x".repeat(len))
    }

    /// Takes the message or not, and sends something.
    fn act(&mut self, id: ConnId, plan: &mut Plan, message: &Heard) {
        let ack = &message.headers["ack"];
        match self.random.below(4) {
            0 => plan.rest.push(message.body.clone()),
            1 => {
                self.say(id, &format!("NACK\nid:{ack}\nrequeue:false\ntransaction:t\n\n\0"));
                plan.refused.push(message.body.clone());
            }
            _ => {
                self.say(id, &format!("ACK\nid:{ack}\ntransaction:t\n\n\0"));
                plan.taken.push(message.body.clone());
            }
        }
        for _ in 0..self.random.below(3) {
            let queue = *self.random.pick(&OUTPUTS);
            let sent = plan.sent.values().map(Vec::len).sum::<usize>();
            let body = self.body(&format!("out {sent}"));
            self.say(id, &format!("SEND\ndestination:/queue/{queue}\ntransaction:t\n\n{body}\0"));
            plan.sent.entry(queue).or_default().push(body);
        }
    }

    /// Fills the ring until a checkpoint is due, and stops it before one of its writes.
    fn fold_some(&mut self, tally: &mut Tally) {
        let id = self.connect();
        for _ in 0..FILLERS_MAX {
            if self.gateway().store.is_folding() {
                break;
            }
            let body = "f".repeat(1_500);
            self.say(id, &format!("SEND\ndestination:/queue/filler\n\n{body}\0"));
            self.gateway().submit();
            self.gateway().store.turn(true);
        }
        assert!(self.gateway().store.is_folding(), "a checkpoint begins");
        let writes = self.random.below(FOLDING_WRITES) as u32;
        self.gateway().store.fold(Some(writes));
        tally.count("crashes in the middle of a checkpoint", u64::from(self.gateway().store.is_mid_fold()));
    }

    /// Sends what the step says and crashes at the place.
    fn crash_at(&mut self, id: ConnId, step: Step, place: Place, tally: &mut Tally) {
        let frame = match step {
            Step::Prepare => "COMMIT\ntransaction:t\nphase:prepare\nreceipt:r\n\n\0".to_owned(),
            Step::Commit => format!("COMMIT\nxid:{XID}\nreceipt:r\n\n\0"),
            Step::RollBack => format!("ABORT\nxid:{XID}\nreceipt:r\n\n\0"),
        };
        let mut by_power = self.random.chance(2);
        self.say(id, &frame);
        self.write();
        if place == Place::Answered {
            self.settle();
            assert!(self.is_answered(id));
            self.fold_some(tally);
            return self.crash(by_power);
        }
        if place != Place::Heard {
            self.gateway().submit();
            self.write();
            if place == Place::Writing {
                by_power = true;
                self.media.cut_power_after(1 + self.random.below(WRITING_OPERATIONS));
            }
            self.gateway().store.turn(true);
            self.write();
        }
        assert!(!self.is_answered(id), "nobody is told before the commit is heard of");
        self.crash(by_power);
    }

    /// The receipt has come; what is rolled back may be delivered again before it.
    fn is_answered(&mut self, id: ConnId) -> bool {
        let heard = self.hear(id);
        let receipts = heard.iter().filter(|frame| frame.command == Command::Receipt).count();
        assert!(heard.iter().all(|frame| frame.command != Command::Error), "{heard:?}");
        receipts > 0
    }

    /// What has become of the transaction, as the gateway tells it.
    fn fate(&mut self) -> Fate {
        if self.listed() {
            return Fate::Prepared;
        }
        let mut told = [true, false].into_iter().map(|commit| {
            let id = self.connect();
            let done = self.decide(id, commit);
            self.lose(id);
            done
        });
        match [told.next(), told.next()] {
            [Some(true), Some(false)] => Fate::Committed,
            [Some(false), Some(true)] => Fate::RolledBack,
            [Some(false), Some(false)] => Fate::Gone,
            other => panic!("it was decided both ways: {other:?}"),
        }
    }

    fn decide(&mut self, id: ConnId, commit: bool) -> bool {
        let command = if commit { "COMMIT" } else { "ABORT" };
        self.ask(id, &format!("{command}\nxid:{XID}\nreceipt:r\n\n\0"))
    }

    /// Compares the queues with what the fate of the transaction leaves in them.
    fn compare(&mut self, plan: &Plan, fate: Fate, seen: &[String]) {
        let committed = fate == Fate::Committed;
        let mut inputs = match fate {
            Fate::Gone | Fate::RolledBack => plan.inputs.clone(),
            Fate::Prepared | Fate::Committed => plan.rest.clone(),
        };
        inputs.retain(|body| !seen.contains(body));
        assert_eq!(self.drain("in"), inputs, "what is left of the inputs, in order");
        for queue in OUTPUTS {
            let sent = plan.sent.get(queue).filter(|_| committed).cloned().unwrap_or_default();
            assert_eq!(self.drain(queue), sent, "what was sent to {queue}, in order");
        }
        let refused = if committed { plan.refused.clone() } else { vec![] };
        assert_eq!(self.drain(DEAD), refused, "dead letters");
    }
}

/// One crash.
fn crash(seed: u64, step: Step, place: Place, tally: &mut Tally) {
    let mut site = Site::new(seed);
    let (mut id, plan) = site.begin();
    if step != Step::Prepare {
        assert!(site.ask(id, "COMMIT\ntransaction:t\nphase:prepare\nreceipt:r\n\n\0"));
        match site.random.below(3) {
            0 => {}
            1 => {
                site.lose(id);
                id = site.connect();
            }
            _ => {
                let by_power = site.random.chance(2);
                site.crash(by_power);
                id = site.connect();
            }
        }
    }
    site.crash_at(id, step, place, tally);
    let fate = site.fate();
    assert!(fates(step, place).contains(&fate), "it is {fate:?}");
    tally.count(outcome(step, place, fate), 1);
    if fate != Fate::Prepared {
        return site.compare(&plan, fate, &[]);
    }
    let mut seen = vec![];
    if site.random.chance(2) {
        site.compare(&plan, Fate::Prepared, &[]);
        seen.clone_from(&plan.rest);
    }
    let (id, commit) = (site.connect(), site.random.chance(2));
    assert!(site.decide(id, commit), "it can still be decided");
    assert!(!site.listed());
    let by_power = site.random.chance(2);
    site.crash(by_power);
    site.compare(&plan, if commit { Fate::Committed } else { Fate::RolledBack }, &seen);
}

/// The line of the tally that says what came of a crash.
fn outcome(step: Step, place: Place, fate: Fate) -> &'static str {
    let line = format!("{step:?}, crash when {place:?}: {fate:?}");
    static LINES: std::sync::Mutex<BTreeMap<String, &'static str>> = std::sync::Mutex::new(BTreeMap::new());
    let mut lines = LINES.lock().unwrap();
    let known = lines.get(&line).copied();
    known.unwrap_or_else(|| {
        let leaked: &'static str = Box::leak(line.clone().into_boxed_str());
        lines.insert(line, leaked);
        leaked
    })
}

#[test]
fn a_crash_at_any_of_twelve_points_leaves_all_of_a_prepared_transaction_or_nothing() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let crashes = number("TIDEGATE_SIM_CRASHES").unwrap_or(CRASHES);
    let mut tally = Tally::default();
    for (step, place) in STEPS.into_iter().flat_map(|step| PLACES.map(|place| (step, place))) {
        for seed in first..first + crashes {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                crash(seed, step, place, &mut tally);
            }));
            assert!(caught.is_ok(), "TIDEGATE_SEED={seed}, {step:?}, crash when {place:?}");
        }
    }
    println!("{tally}");
    for (step, place) in STEPS.into_iter().flat_map(|step| PLACES.map(|place| (step, place))) {
        for fate in fates(step, place) {
            let line = outcome(step, place, fate);
            assert!(crashes < CRASHES || tally.of(line) > 0, "the seeds bring no \"{line}\" about");
        }
    }
    assert!(tally.of("crashes in the middle of a checkpoint") > 0);
}
