//! Shared subscriptions.

use std::collections::BTreeSet;

use crate::harness::{
    Client, Filter, Gateway, Login, Message, PATIENCE, SHORT, Version, eventually, for_both_versions,
};

const GROUP: &str = "$share/workers/jobs/#";

fn member(gateway: &Gateway, login: &Login) -> Client {
    let mut member = login.open(gateway.address()).unwrap();
    member.subscribe(GROUP, 1).unwrap();
    member
}

fn jobs(range: std::ops::Range<u32>) -> impl Iterator<Item = Message> {
    range.map(|n| Message::new(&format!("jobs/{}", n % 4), n.to_string(), 1))
}

/// Reads from all members until every number below `count` was seen; panics if one comes twice.
fn collect(members: &mut [&mut Client], mut seen: BTreeSet<String>, count: usize) -> Vec<usize> {
    let mut shares = vec![0; members.len()];
    eventually("all jobs", PATIENCE, || {
        for (share, member) in shares.iter_mut().zip(members.iter_mut()) {
            while let Some(message) = member.message_within(SHORT).unwrap() {
                *share += 1;
                assert!(seen.insert(message.text()), "{} came twice", message.text());
            }
        }
        if seen.len() == count { Ok(()) } else { Err(format!("{} of {count}", seen.len())) }
    });
    shares
}

#[test]
fn each_message_goes_to_one_member_and_every_member_gets_some() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut members: Vec<Client> =
            (0..3).map(|n| member(&gateway, &Login::fresh(version, &format!("member-{n}")))).collect();
        let mut outsider = Login::fresh(version, "outsider").open(gateway.address()).unwrap();
        outsider.subscribe("jobs/#", 1).unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all(jobs(0..300), 50).unwrap();
        let shares = collect(&mut members.iter_mut().collect::<Vec<_>>(), BTreeSet::new(), 300);
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
        assert_eq!(collect(&mut [&mut outsider], BTreeSet::new(), 300), [300]);
    });
}

#[test]
fn groups_are_independent_of_each_other() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut clients: Vec<Client> = ["red", "blue"]
            .iter()
            .map(|group| {
                let mut client = Login::fresh(version, group).open(gateway.address()).unwrap();
                client.subscribe(&format!("$share/{group}/jobs/#"), 1).unwrap();
                client
            })
            .collect();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all(jobs(0..50), 50).unwrap();
        for client in &mut clients {
            assert_eq!(collect(&mut [client], BTreeSet::new(), 50), [50]);
        }
    });
}

#[test]
fn a_member_that_is_lost_with_unacknowledged_messages_loses_none_of_them() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut stays = member(&gateway, &Login::fresh(version, "stays"));
        let mut leaves = member(&gateway, &Login::fresh(version, "leaves"));
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all(jobs(0..100), 50).unwrap();
        leaves.take().unwrap();
        drop(leaves);
        collect(&mut [&mut stays], BTreeSet::new(), 100);
    });
}

#[test]
fn a_member_that_unsubscribes_leaves_its_waiting_messages_to_the_others() {
    let gateway = Gateway::start();
    let mut stays = member(&gateway, &Login::fresh(Version::V5, "stays"));
    // Of the leaving member's share one is under way, the rest waits for its window.
    let mut leaves = member(&gateway, &Login::fresh(Version::V5, "leaves").receive_max(1));
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish_all(jobs(0..100), 50).unwrap();
    let under_way = leaves.take().unwrap();
    assert_eq!(leaves.unsubscribe(&[GROUP]).unwrap(), [0]);
    leaves.settle(&under_way).unwrap();
    collect(&mut [&mut stays], BTreeSet::from([under_way.text()]), 100);
}

#[test]
fn a_group_whose_members_are_all_away_keeps_its_messages() {
    for_both_versions(|version| {
        let mut gateway = Gateway::start();
        let logins = ["one", "two"].map(|name| Login::persistent(version, name));
        for login in &logins {
            member(&gateway, login).disconnect().unwrap();
        }
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all(jobs(0..100), 50).unwrap();
        gateway.kill();
        gateway.restart();
        let mut members: Vec<Client> =
            logins.iter().map(|login| login.open(gateway.address()).unwrap()).collect();
        collect(&mut members.iter_mut().collect::<Vec<_>>(), BTreeSet::new(), 100);
    });
}

#[test]
fn members_that_are_away_do_not_hold_messages_back_from_one_that_is_there() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        member(&gateway, &Login::persistent(version, "away")).disconnect().unwrap();
        let mut there = member(&gateway, &Login::fresh(version, "there"));
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all(jobs(0..100), 50).unwrap();
        assert_eq!(collect(&mut [&mut there], BTreeSet::new(), 100), [100]);
    });
}

#[test]
fn a_shared_subscription_is_sent_no_retained_messages() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish(&Message::retained("jobs/1", "kept", 1)).unwrap();
        let mut member = member(&gateway, &Login::fresh(version, "member"));
        publisher.publish(&Message::new("jobs/1", "end", 1)).unwrap();
        assert_eq!(member.messages_until("end").unwrap(), []);
    });
}

#[test]
fn no_local_on_a_shared_subscription_is_refused() {
    let gateway = Gateway::start();
    let mut client = Login::fresh(Version::V5, "client").open(gateway.address()).unwrap();
    let refused = client.subscribe_all(None, &[Filter::new(GROUP, 1).no_local()]);
    assert!(refused.is_err() || refused.is_ok_and(|codes| codes[0] >= 0x80));
    gateway.assert_serves();
}

#[test]
fn malformed_group_names_are_refused() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        for filter in ["$share/workers", "$share//jobs", "$share/a+b/jobs", "$share/workers/"] {
            let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
            let refused = client.subscribe_all(None, &[Filter::new(filter, 1)]);
            assert!(refused.is_err() || refused.is_ok_and(|codes| codes[0] >= 0x80), "{filter}");
        }
        gateway.assert_serves();
    });
}
