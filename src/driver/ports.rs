//! Links inside this process: their commands become turns of the hub.

use std::rc::Rc;

use tokio::sync::mpsc;

use crate::broker::api::{ClientCommand, ConnId};
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

async fn run(shell: Rc<Shell>, id: ConnId, mut commands: mpsc::Receiver<ClientCommand>) {
    let mut turn = Vec::with_capacity(TURN_COMMANDS_MAX);
    loop {
        while shell.store_is_behind() {
            shell.room.notified().await;
        }
        if commands.recv_many(&mut turn, TURN_COMMANDS_MAX).await == 0 || shell.hub.borrow().is_ending(id) {
            break;
        }
        take_turn(&shell, id, &mut turn);
        tokio::task::yield_now().await;
    }
    shell.remove(id);
}

fn take_turn(shell: &Shell, id: ConnId, turn: &mut Vec<ClientCommand>) {
    let now = shell.now();
    let mut hub = shell.hub.borrow_mut();
    for command in turn.drain(..) {
        hub.command(id, command, now);
        shell.submit_if_large(&mut hub, now);
    }
    hub.finish_turn(now);
    shell.flush.notify_one();
}
