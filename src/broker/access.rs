//! Who may do what: the access rules applied to sessions, publishers, subscriptions and deliveries.
//!
//! A client that connects gets the [`Rights`] that the rules in force give it; a change of the rules gives every session new ones.
//! Publishing and subscribing are checked as they are asked for. A session all of whose subscriptions it may read as a whole is
//! not looked at again; any other one is *filtered*: each message is checked when it is to join the session's queue and again
//! when it is to leave it, so that nothing is delivered once its right is withdrawn. A member of a shared subscription that may
//! no longer read all of it is passed over.
//!
//! Without rules nothing of this costs more than a look at an absent value. Links inside this process are exempt.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::access::{Identity, Method, Rights, RuleSet};
use crate::broker::Broker;
use crate::broker::api::{CloseReason, ConnId, ConnectRequest, Refusal, Will};
use crate::queue::Discard;
use crate::queue::group::GroupKey;
use crate::session::SessionKey;
use crate::session::rows::{Owner, qos2_key};
use crate::store::contract::Space;
use crate::time::Now;
use crate::topic::Filter;

/// Client identifiers of the links inside this process.
const LINK_PREFIX: &str = "$bridge/";

/// The rules in force.
#[derive(Clone, Debug, Default)]
pub struct AccessRules {
    /// `None`: everybody may do everything.
    pub rules: Option<Arc<RuleSet>>,
    /// A session belongs to the user that made it.
    pub owned_sessions: bool,
    /// What a client is told that asks where it may have its answers sent; `%c` and `%u` stand for its names.
    pub response_information: Option<Arc<str>>,
}

/// What a session knows about its client.
#[derive(Clone, Debug)]
pub struct SessionAccess {
    /// Who it is, or was when it was last connected.
    pub identity: Identity,
    /// What it may do; `None`: everything.
    pub rights: Option<Rights>,
    /// Shared subscriptions that it may not read as a whole any more.
    suspended: SmallVec<[GroupKey; 1]>,
}

impl SessionAccess {
    /// Its part in the group rests.
    #[must_use]
    pub fn is_suspended(&self, group: GroupKey) -> bool {
        self.suspended.contains(&group)
    }
}

/// Whose will it is, for the check when it is published.
#[derive(Clone, Debug)]
pub(super) struct WillOwner {
    user: Option<Arc<str>>,
    rules: Option<Arc<RuleSet>>,
}

impl Broker {
    /// Other rules are in force from now on.
    pub fn set_access(&mut self, access: AccessRules, now: Now) {
        self.access = access;
        let mut keys: Vec<SessionKey> = self.clients.values().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.refresh_rights(key);
            for group in self.sessions[key as usize].groups.clone() {
                self.pump_group(group, now);
            }
        }
    }

    /// Ends a connection whose login no longer counts; `false` when it is over already.
    pub fn end_login(&mut self, conn: ConnId, now: Now) -> bool {
        let Some(&key) = self.conns.get(&conn) else { return false };
        self.stats.logins_ended += 1;
        self.close(key, CloseReason::NotAuthorized, now)
    }

    /// Who the client of a connection is.
    #[must_use]
    pub fn identity(&self, conn: ConnId) -> Identity {
        let session = self.conns.get(&conn).map(|key| &self.sessions[*key as usize]);
        session
            .and_then(|session| session.access.as_ref())
            .map(|access| access.identity.clone())
            .unwrap_or_default()
    }

    /// The client identifier of a connection's session; `None`: it has none.
    #[must_use]
    pub fn client_id(&self, conn: ConnId) -> Option<Arc<str>> {
        self.conns.get(&conn).map(|key| self.sessions[*key as usize].client_id.clone())
    }

    /// Where a client may have its answers sent. `None` if nothing is configured, or a name of the client cannot stand in a topic.
    pub(super) fn response_information(&self, key: SessionKey) -> Option<Box<str>> {
        let template = self.access.response_information.as_ref()?;
        let session = &self.sessions[key as usize];
        let user = session.access.as_ref().and_then(|access| access.identity.user.as_deref());
        crate::access::fill_in_names(template, user, &session.client_id).map(Box::from)
    }

    /// Every connection and who its client is; `None`: anonymous.
    pub fn logins(&self) -> impl Iterator<Item = (ConnId, Option<&Identity>)> {
        self.conns.iter().map(|(conn, key)| {
            let access = self.sessions[*key as usize].access.as_ref();
            (*conn, access.map(|access| &access.identity))
        })
    }

    /// A client may not take another one's session, or a link's, and may publish its will.
    pub(super) fn check_login(
        &self,
        request: &ConnectRequest,
        identity: &Identity,
        client_id: &str,
    ) -> Result<(), Refusal> {
        if request.internal {
            return Ok(());
        }
        if client_id.starts_with(LINK_PREFIX) {
            return Err(Refusal::ClientIdInvalid);
        }
        let owner = self
            .clients
            .get(client_id)
            .and_then(|key| self.sessions[*key as usize].access.as_ref()?.identity.user.as_ref());
        if self.access.owned_sessions && owner.is_some_and(|owner| Some(owner) != identity.user.as_ref()) {
            return Err(Refusal::NotAuthorized);
        }
        let allowed = |will: &Will| {
            let rights = self.rights_of(identity.user.as_deref(), client_id, identity.rules.as_ref());
            rights.is_none_or(|rights| rights.write(&will.topic).allowed)
        };
        if request.will.as_ref().is_none_or(allowed) { Ok(()) } else { Err(Refusal::NotAuthorized) }
    }

    fn rights_of(&self, user: Option<&str>, client_id: &str, token: Option<&Arc<RuleSet>>) -> Option<Rights> {
        match (&self.access.rules, token) {
            (None, None) => None,
            (Some(rules), token) => Some(Rights::new(rules, user, client_id, token)),
            (None, Some(token)) => {
                let nothing = Arc::new(RuleSet::empty("", false));
                Some(Rights::new(&nothing, user, client_id, Some(token)))
            }
        }
    }

    /// A client has connected, or the session was found in the store: who its client is.
    pub(super) fn set_identity(&mut self, key: SessionKey, identity: Identity) {
        let is_known = identity.method != Method::Anonymous || self.access.rules.is_some();
        let session = &mut self.sessions[key as usize];
        if !is_known || session.internal {
            session.access = None;
            session.filtered = false;
            return;
        }
        let access = SessionAccess { identity, rights: None, suspended: SmallVec::new() };
        session.access = Some(Box::new(access));
        self.refresh_rights(key);
        // What waits from earlier may be what it may not read, whatever it subscribes to now.
        let session = &mut self.sessions[key as usize];
        let restricted = session.access.as_ref().is_some_and(|access| access.rights.is_some());
        session.filtered |= restricted && self.queues[session.queue as usize].messages() > 0;
    }

    /// The session was found in the store: whose it is.
    pub(super) fn restore_owner(&mut self, key: SessionKey, owner: Owner) {
        let method = if owner.by_token { Method::Token } else { Method::Password };
        let identity = Identity { user: Some(owner.user), method, ..Identity::default() };
        let access = SessionAccess { identity, rights: None, suspended: SmallVec::new() };
        self.sessions[key as usize].access = Some(Box::new(access));
    }

    /// Whose the session is, for its row.
    pub(super) fn owner_of(&self, key: SessionKey) -> Option<Owner> {
        let identity = &self.sessions[key as usize].access.as_ref()?.identity;
        let by_token = identity.method == Method::Token;
        Some(Owner { user: identity.user.clone()?, by_token })
    }

    /// Works out what a session may do, after it or the rules have changed.
    fn refresh_rights(&mut self, key: SessionKey) {
        let session = &self.sessions[key as usize];
        if session.access.is_none() && (self.access.rules.is_none() || session.internal) {
            return;
        }
        let identity = session.access.as_ref().map(|access| access.identity.clone()).unwrap_or_default();
        // What a token says is not stored: nothing is known until its holder is back.
        let unknown = identity.method == Method::Token && identity.rules.is_none() && session.conn.is_none();
        let rights = match unknown {
            true => None,
            false => self.rights_of(identity.user.as_deref(), &session.client_id, identity.rules.as_ref()),
        };
        let had_rights = session.access.as_ref().is_some_and(|access| access.rights.is_some());
        let waits = self.queues[session.queue as usize].messages() > 0;
        let mut suspended = SmallVec::new();
        let mut filtered = rights.is_some() && waits && (session.filtered || !had_rights);
        for (text, subscription) in &session.subscriptions {
            let Some(rights) = &rights else { break };
            let filter = Filter::parse(text, &self.limits);
            let whole = filter.is_ok_and(|filter| rights.reads_all(&filter.filter));
            match subscription.group {
                Some(group) if !whole => suspended.push(group),
                _ => filtered |= !whole,
            }
        }
        for group in session.consumers.iter().flat_map(|consumers| consumers.values()) {
            let filter = self.groups[*group as usize].filter();
            if rights.as_ref().is_some_and(|rights| !rights.reads_all(filter)) {
                suspended.push(*group);
            }
        }
        let session = &mut self.sessions[key as usize];
        session.filtered = filtered;
        session.access = Some(Box::new(SessionAccess { identity, rights, suspended }));
    }

    /// Whether the session's client may subscribe; what it may not read of the filter is kept from it message by message.
    pub(super) fn may_subscribe_to(&mut self, key: SessionKey, filter: &Filter, competing: bool) -> bool {
        let session = &mut self.sessions[key as usize];
        let Some(rights) = session.access.as_ref().and_then(|access| access.rights.as_ref()) else {
            return true;
        };
        if !rights.subscribe(&filter.filter, competing).allowed {
            self.stats.denied_subscribes += 1;
            return false;
        }
        session.filtered |= !competing && !rights.reads_all(&filter.filter);
        true
    }

    /// Whether the session's client may consume a named queue.
    pub(super) fn may_consume(&mut self, key: SessionKey, queue: &str) -> bool {
        let filter = Filter { share: None, filter: queue.into() };
        self.may_subscribe_to(key, &filter, true)
    }

    /// Whether the session's client may publish to the topic.
    #[inline]
    pub(super) fn may_publish_to(&self, key: SessionKey, topic: &str) -> bool {
        let access = self.sessions[key as usize].access.as_ref();
        let rights = access.and_then(|access| access.rights.as_ref());
        rights.is_none_or(|rights| rights.write(topic).allowed)
    }

    /// Whether a message of the topic may go to the session's client.
    #[inline]
    pub(super) fn may_deliver(&self, key: SessionKey, topic: &str) -> bool {
        !self.sessions[key as usize].filtered || self.may_read(key, topic)
    }

    #[cold]
    fn may_read(&self, key: SessionKey, topic: &str) -> bool {
        let access = self.sessions[key as usize].access.as_ref();
        let rights = access.and_then(|access| access.rights.as_ref());
        rights.is_none_or(|rights| rights.read(topic).allowed)
    }

    /// The message in front of the session's queue may no longer go to its client: it leaves the queue.
    pub(super) fn drop_denied_front(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key as usize];
        let own = session.queue;
        let queue = &mut self.queues[own as usize];
        let Some(entry) = queue.discard(&mut self.budget, Discard::Denied, |_| true) else { return };
        if let Some(id) = session.resend.remove(&entry.seq)
            && let Some(slot) = session.inflight.remove(id)
            && slot.has_row
            && let Some(number) = session.number
        {
            self.batch.delete(Space::OutboundQos2, qos2_key(number, id.get()));
        }
        self.stats.dropped_denied += 1;
        self.batch.settle(queue, entry.seq, entry.message.size());
    }

    /// Whose will it is that the session's client leaves.
    pub(super) fn will_owner(&self, key: SessionKey) -> Option<WillOwner> {
        let identity = &self.sessions[key as usize].access.as_ref()?.identity;
        Some(WillOwner { user: identity.user.clone(), rules: identity.rules.clone() })
    }

    /// Whether a will may still be published. One that was found in the store was checked when its client connected.
    pub(super) fn may_publish_will(&self, client_id: &str, owner: Option<&WillOwner>, topic: &str) -> bool {
        let Some(owner) = owner else { return true };
        let rights = self.rights_of(owner.user.as_deref(), client_id, owner.rules.as_ref());
        rights.is_none_or(|rights| rights.write(topic).allowed)
    }
}
