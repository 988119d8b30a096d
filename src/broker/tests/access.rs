//! Access rules: the table of questions asked of the broker, sessions that belong to users, and rights that are withdrawn.

use std::sync::Arc;

use super::*;
use crate::access::tests::{Case, cases};
use crate::access::{Action, Identity, Method, RuleSet};
use crate::broker::AccessRules;

fn identity(user: Option<&str>) -> Identity {
    match user {
        Some(user) => Identity { user: Some(user.into()), method: Method::Password, ..Identity::default() },
        None => Identity::default(),
    }
}

fn rules(text: &str) -> AccessRules {
    let rules = RuleSet::parse("acl", text, false).unwrap();
    AccessRules { rules: Some(Arc::new(rules)), owned_sessions: true, ..AccessRules::default() }
}

impl Rig {
    fn login(&mut self, user: Option<&str>, client: &str, durable: bool) -> ConnId {
        self.login_with(user, client, durable, |_| {})
    }

    fn login_with(
        &mut self,
        user: Option<&str>,
        client: &str,
        durable: bool,
        change: impl FnOnce(&mut ConnectRequest),
    ) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let mut request = ConnectRequest {
            client_id: client.into(),
            clean_start: false,
            expiry: if durable { SessionExpiry::Never } else { SessionExpiry::WithConnection },
            receive_max: 100,
            will: None,
            internal: false,
        };
        change(&mut request);
        self.broker.connect_as(conn, request, identity(user), self.now());
        self.turn();
        conn
    }

    fn set_rules(&mut self, text: &str) {
        self.broker.set_access(rules(text), self.now());
        self.turn();
    }

    /// A link, which no rule holds back.
    fn operator(&mut self) -> ConnId {
        self.connect_with("$bridge/operator", |request| request.internal = true)
    }

    fn outcome(&mut self, conn: ConnId, filter: &str) -> SubscribeOutcome {
        let options = SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() };
        let filters = vec![SubscribeFilter { filter: filter.into(), options }];
        self.send(conn, ClientCommand::Subscribe { tag: ReplyTag(1), subscription_id: None, filters });
        let heard = self.heard(conn);
        let outcome = heard.iter().find_map(|event| match event {
            ClientEvent::Subscribed { outcomes, .. } => Some(outcomes[0]),
            _ => None,
        });
        outcome.expect("an answer")
    }

    fn published(&mut self, conn: ConnId, topic: &str) -> PublishOutcome {
        self.heard(conn);
        self.publish(conn, topic, "x", Qos::AtLeastOnce, 1);
        let heard = self.heard(conn);
        let outcome = heard.iter().find_map(|event| match event {
            ClientEvent::Published { outcome, .. } => Some(*outcome),
            _ => None,
        });
        outcome.expect("an answer")
    }
}

/// What the broker does about a question, in fact.
fn in_fact(case: &Case) -> bool {
    let access =
        AccessRules { rules: Some(Arc::clone(&case.rules)), owned_sessions: true, ..AccessRules::default() };
    let mut rig = Rig::new();
    let conn = rig.login(case.user.as_deref(), &case.client, true);
    match case.action {
        Action::Write => {
            rig.broker.set_access(access, rig.now());
            let outcome = rig.published(conn, &case.topic);
            !matches!(outcome, PublishOutcome::NotAuthorized | PublishOutcome::TopicInvalid)
        }
        Action::Subscribe => {
            rig.broker.set_access(access, rig.now());
            match rig.outcome(conn, &case.topic) {
                SubscribeOutcome::Granted(_) => true,
                SubscribeOutcome::NotAuthorized => false,
                other => panic!("{other:?}"),
            }
        }
        Action::Read => {
            // The subscription is older than the rules: what decides is the check of each message.
            rig.subscribe(conn, &case.topic, Qos::AtLeastOnce);
            rig.broker.set_access(access, rig.now());
            let operator = rig.operator();
            let mut got = 0;
            for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
                rig.publish(operator, &case.topic, "x", qos, 1 + qos as u16);
                got += rig.deliveries(conn).len();
            }
            assert!(got == 0 || got == 3, "{case:?}: {got}");
            got == 3
        }
    }
}

#[test]
fn the_broker_does_what_the_explanation_of_each_question_says() {
    for case in cases() {
        let explained = case.explained();
        assert_eq!(in_fact(&case), explained.allowed, "{case:?}\n{}", explained.text);
    }
}

#[test]
fn a_withdrawn_right_stops_deliveries_at_once_also_of_what_waits() {
    let mut rig = Rig::new();
    rig.set_rules("allow read # user ann");
    let operator = rig.operator();
    let conn = rig.login_with(Some("ann"), "a", true, |request| request.receive_max = 2);
    assert_eq!(rig.outcome(conn, "#"), SubscribeOutcome::Granted(Qos::AtLeastOnce));
    for n in 0..6 {
        let topic = if n % 2 == 0 { "open" } else { "secret" };
        rig.publish(operator, topic, &n.to_string(), Qos::AtLeastOnce, 10 + n);
    }
    let first = rig.deliveries(conn);
    assert_eq!(first.iter().map(payload).collect::<Vec<_>>(), ["0", "1"], "its window is full");
    rig.set_rules("deny read secret\nallow read # user ann");
    rig.publish(operator, "secret", "6", Qos::AtLeastOnce, 20);
    rig.publish(operator, "secret", "7", Qos::AtMostOnce, 0);
    rig.publish(operator, "open", "8", Qos::AtLeastOnce, 21);
    for delivery in first {
        rig.ack(conn, delivery.id.unwrap());
    }
    assert_eq!(rig.drain(conn), ["2", "4", "8"]);
    assert_eq!(rig.broker.stats().dropped_denied, 2);
    rig.set_rules("allow read # user ann");
    rig.publish(operator, "secret", "9", Qos::AtLeastOnce, 22);
    assert_eq!(rig.drain(conn), ["9"], "the subscription was kept");
}

#[test]
fn what_waits_for_an_absent_client_is_kept_from_it_when_its_right_is_gone_when_it_returns() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut rig = Rig::new();
        rig.set_rules("allow read # user ann");
        let operator = rig.operator();
        let conn = rig.login(Some("ann"), "a", true);
        rig.subscribe(conn, "#", qos);
        rig.publish(operator, "secret", "under way", qos, 10);
        assert_eq!(rig.payloads(conn), ["under way"]);
        rig.lose(conn);
        rig.publish(operator, "secret", "waits", qos, 11);
        rig.publish(operator, "open", "good", qos, 12);
        rig.set_rules("allow read open user ann");
        rig.publish(operator, "secret", "late", qos, 13);
        let conn = rig.login(Some("ann"), "a", true);
        assert_eq!(rig.drain(conn), ["good"], "{qos:?}");
        assert_eq!(rig.queue("a").messages, 0);
    }
}

#[test]
fn retained_messages_are_checked_too() {
    let mut rig = Rig::new();
    rig.set_rules("allow read open/#");
    let operator = rig.operator();
    rig.retain(operator, "open/a", "1", Qos::AtLeastOnce);
    rig.retain(operator, "secret/a", "2", Qos::AtLeastOnce);
    rig.retain(operator, "secret/b", "3", Qos::AtMostOnce);
    let conn = rig.login(None, "a", false);
    rig.heard(conn);
    let options = SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() };
    rig.subscribe_with(conn, "#", options, None);
    assert_eq!(rig.payloads(conn), ["1"]);
}

#[test]
fn a_member_that_may_no_longer_read_a_shared_subscription_is_passed_over() {
    let mut rig = Rig::new();
    let all = "allow read t/# user ann\nallow read t/# user bob";
    rig.set_rules(all);
    let operator = rig.operator();
    let (ann, bob) = (rig.login(Some("ann"), "a", true), rig.login(Some("bob"), "b", true));
    for conn in [ann, bob] {
        assert!(matches!(rig.outcome(conn, "$share/g/t/#"), SubscribeOutcome::Granted(_)));
    }
    rig.set_rules("deny read t/x user ann\nallow read t/# user ann\nallow read t/# user bob");
    for n in 0..4 {
        rig.publish(operator, "t/y", &n.to_string(), Qos::AtLeastOnce, 10 + n);
    }
    assert_eq!(rig.drain(bob), ["0", "1", "2", "3"]);
    assert!(rig.payloads(ann).is_empty());
    rig.set_rules("allow read other");
    rig.publish(operator, "t/y", "4", Qos::AtLeastOnce, 20);
    rig.publish(operator, "t/y", "5", Qos::AtMostOnce, 0);
    assert!(rig.payloads(ann).is_empty() && rig.payloads(bob).is_empty());
    rig.set_rules(all);
    let both = [rig.drain(ann), rig.drain(bob)].concat();
    assert_eq!(both, ["4"], "it waited for somebody who may have it");
}

#[test]
fn a_will_needs_the_right_to_publish_when_it_is_left_and_when_it_is_published() {
    let mut rig = Rig::new();
    rig.set_rules("allow all w user ann\nallow read # user bob");
    let watcher = rig.login(Some("bob"), "watcher", true);
    assert!(matches!(rig.outcome(watcher, "#"), SubscribeOutcome::Granted(_)));
    let with_will =
        |topic: &'static str| move |request: &mut ConnectRequest| request.will = Some(will(topic, 0));
    let refused = rig.login_with(Some("ann"), "a", false, with_will("other"));
    assert!(matches!(rig.heard(refused)[..], [ClientEvent::Refused(Refusal::NotAuthorized)]));
    let first = rig.login_with(Some("ann"), "a", false, with_will("w"));
    rig.lose(first);
    assert_eq!(rig.drain(watcher), ["gone"]);
    let second = rig.login_with(Some("ann"), "a", false, with_will("w"));
    rig.set_rules("allow read # user bob");
    rig.lose(second);
    assert!(rig.drain(watcher).is_empty());
    assert_eq!(rig.broker.stats().denied_publishes, 1);
}

#[test]
fn a_session_belongs_to_the_user_that_made_it() {
    let mut rig = Rig::new();
    rig.set_rules("allow all #");
    let refused = |rig: &mut Rig, user, clean: bool| {
        let conn = rig.login_with(user, "a", true, |request| request.clean_start = clean);
        matches!(rig.heard(conn)[..], [ClientEvent::Refused(Refusal::NotAuthorized)])
    };
    let ann = rig.login(Some("ann"), "a", true);
    rig.subscribe(ann, "t", Qos::AtLeastOnce);
    for user in [Some("bob"), None] {
        for clean in [true, false] {
            assert!(refused(&mut rig, user, clean), "{user:?}, while she is there");
        }
    }
    rig.lose(ann);
    assert!(refused(&mut rig, Some("bob"), true) && refused(&mut rig, None, false));
    assert!(!refused(&mut rig, Some("ann"), false));
    rig.kill_and_restart(1);
    rig.set_rules("allow all #");
    assert!(refused(&mut rig, Some("bob"), true), "after a restart too");
    let access = AccessRules { owned_sessions: false, ..rules("allow all #") };
    rig.broker.set_access(access, rig.now());
    assert!(!refused(&mut rig, Some("bob"), false));
}

#[test]
fn an_anonymous_clients_session_belongs_to_nobody() {
    let mut rig = Rig::new();
    rig.set_rules("allow all #");
    let conn = rig.login(None, "a", true);
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
    let conn = rig.login(Some("ann"), "a", true);
    assert!(matches!(&rig.heard(conn)[..], [ClientEvent::Connected(c)] if c.session_present));
}

#[test]
fn a_client_does_not_take_a_links_place() {
    let mut rig = Rig::new();
    rig.operator();
    let conn = rig.login(None, "$bridge/operator", true);
    assert!(matches!(rig.heard(conn)[..], [ClientEvent::Refused(Refusal::ClientIdInvalid)]));
}

#[test]
fn rights_hold_after_a_restart_for_sessions_that_are_away() {
    let mut rig = Rig::new();
    let text = "allow read open user ann";
    rig.set_rules(text);
    let conn = rig.login(Some("ann"), "a", true);
    rig.subscribe(conn, "#", Qos::AtLeastOnce);
    rig.lose(conn);
    rig.kill_and_restart(1);
    rig.set_rules(text);
    let operator = rig.operator();
    rig.publish(operator, "secret", "1", Qos::AtLeastOnce, 10);
    rig.publish(operator, "open", "2", Qos::AtLeastOnce, 11);
    assert_eq!(rig.queue("a").messages, 1);
    let conn = rig.login(Some("ann"), "a", true);
    assert_eq!(rig.drain(conn), ["2"]);
}
