// Produces, consumes, reconnects and commits with stompit: client_stompit.js PORT. Prints what it has done.
const assert = require('assert');
const stompit = require('stompit');

const port = Number(process.argv[2]);
const QUEUE = '/queue/node';

function connect() {
  return new Promise((resolve, reject) => {
    stompit.connect({ host: '127.0.0.1', port, connectHeaders: { host: '/', 'heart-beat': '1000,1000' } }, (error, client) =>
      error ? reject(error) : resolve(client));
  });
}

function send(sender, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const frame = sender.send({ destination: QUEUE, ...headers }, {
      onReceipt: resolve, onError: reject,
    });
    frame.end(body);
  });
}

function take(client, count, acknowledged) {
  return new Promise((resolve, reject) => {
    const bodies = [];
    const subscription = client.subscribe({ destination: QUEUE, ack: 'client-individual' }, (error, message) => {
      if (error) return reject(error);
      message.readString('utf-8', (error, body) => {
        if (error) return reject(error);
        bodies.push({ body, redelivered: message.headers.redelivered === 'true' });
        if (bodies.length <= acknowledged) client.ack(message);
        if (bodies.length === count) {
          subscription.unsubscribe();
          resolve(bodies);
        }
      });
    });
  });
}

const leave = (client) => new Promise((resolve) => client.disconnect(() => resolve()));

async function main() {
  let client = await connect();
  await Promise.all(Array.from({ length: 100 }, (_, i) => send(client, String(i))));
  const first = await take(client, 100, 50);
  assert.deepStrictEqual(first.map((m) => m.body), Array.from({ length: 100 }, (_, i) => String(i)));
  await leave(client);

  client = await connect();
  const second = await take(client, 50, 50);
  assert.deepStrictEqual(second.map((m) => m.body), Array.from({ length: 50 }, (_, i) => String(i + 50)));
  assert(second.every((m) => m.redelivered));

  const aborted = client.begin();
  aborted.send({ destination: QUEUE }).end('rolled back');
  aborted.abort();
  const committed = client.begin();
  committed.send({ destination: QUEUE }).end('committed');
  committed.commit();
  assert.deepStrictEqual((await take(client, 1, 1)).map((m) => m.body), ['committed']);
  await leave(client);
  console.log('done');
}

main().catch((error) => { console.error(error); process.exit(1); });
