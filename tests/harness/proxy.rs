//! A TCP proxy that can be cut: the network between a gateway and its upstream.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Forwards every connection to a target while it is not cut.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    cut: AtomicBool,
    swallows: AtomicBool,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Listens on a free port.
    pub fn to(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let [cut, swallows, over] = [const { AtomicBool::new(false) }; 3];
        let shared = Arc::new(Shared { target, cut, swallows, over, open: Mutex::new(Vec::new()) });
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.accept_all(&listener))
        };
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections and takes no new one. What was under way in them is lost.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::SeqCst);
        self.shared.close_all();
    }

    /// Takes every connection and every byte, and passes nothing on: nobody is told that anything is wrong.
    pub fn swallow(&self) {
        self.shared.swallows.store(true, Ordering::SeqCst);
    }

    /// Forwards again. Connections of which something was swallowed end.
    pub fn mend(&self) {
        self.shared.cut.store(false, Ordering::SeqCst);
        if self.shared.swallows.swap(false, Ordering::SeqCst) {
            self.shared.close_all();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.close_all();
        // The acceptor waits in accept(); a connection wakes it.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

impl Shared {
    fn accept_all(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            if self.cut.load(Ordering::SeqCst) {
                continue;
            }
            if self.swallows.load(Ordering::SeqCst) {
                self.open.lock().expect("no holder of this lock panics").push(client);
                continue;
            }
            if let Ok(server) = TcpStream::connect(self.target) {
                drop(self.join(client, server));
            }
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        {
            let mut open = self.open.lock().expect("no holder of this lock panics");
            open.extend([client.try_clone()?, server.try_clone()?]);
        }
        // A cut between the check and the registration must not leave a connection behind.
        if self.cut.load(Ordering::SeqCst) {
            self.close_all();
        }
        let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        std::thread::spawn(move || up.pump(from_client, server));
        std::thread::spawn(move || down.pump(from_server, client));
        Ok(())
    }

    fn close_all(&self) {
        for stream in self.open.lock().expect("no holder of this lock panics").drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if !self.swallows.load(Ordering::SeqCst) && to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Both));
        drop(from.shutdown(Shutdown::Both));
    }
}
