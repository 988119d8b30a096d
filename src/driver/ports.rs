//! Links inside this process: their commands become turns of the hub.

use std::rc::Rc;

use tokio::sync::mpsc;

use crate::broker::api::ConnId;
use crate::driver::shell::{PeerIo, Shell};
use crate::port::PortPeer;

/// Commands of one turn.
const TURN_COMMANDS_MAX: usize = 64;

/// Attaches every link that asks for it.
pub async fn serve(shell: Rc<Shell>, mut requests: mpsc::Receiver<PortPeer>) {
    while let Some(peer) = requests.recv().await {
        let id = shell.hub.borrow_mut().open_port();
        shell.add_peer(id, PeerIo::Port(peer.events));
        tokio::task::spawn_local(run(Rc::clone(&shell), id, peer.commands));
    }
}

async fn run(shell: Rc<Shell>, id: ConnId, mut commands: mpsc::Receiver<crate::broker::api::ClientCommand>) {
    let mut turn = Vec::with_capacity(TURN_COMMANDS_MAX);
    loop {
        while shell.store_is_behind() {
            shell.room.notified().await;
        }
        if commands.recv_many(&mut turn, TURN_COMMANDS_MAX).await == 0 || shell.hub.borrow().is_ending(id) {
            break;
        }
        let now = shell.now();
        let mut hub = shell.hub.borrow_mut();
        turn.drain(..).for_each(|command| hub.command(id, command, now));
        hub.finish_turn(now);
        drop(hub);
        shell.flush.notify_one();
        tokio::task::yield_now().await;
    }
    shell.remove(id);
}
