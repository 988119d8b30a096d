// A Node-RED process whose flow takes messages with an MQTT node, changes them, and publishes them with another one.
//
// Arguments: port, folder for its files, MQTT level (4 or 5), QoS. It runs until it is killed.
'use strict'

const fs = require('fs')
const http = require('http')
const path = require('path')
const RED = require('node-red')

const [port, userDir, level, qos] = process.argv.slice(2)

const flow = [
  { id: 'tab', type: 'tab', label: 'flow' },
  {
    id: 'broker',
    type: 'mqtt-broker',
    name: 'gateway',
    broker: '127.0.0.1',
    port,
    clientid: `node-red-${level}-${qos}`,
    autoConnect: true,
    usetls: false,
    protocolVersion: level,
    keepalive: '10',
    cleansession: false,
    autoUnsubscribe: true,
    sessionExpiry: '3600'
  },
  {
    id: 'in',
    type: 'mqtt in',
    z: 'tab',
    topic: 'node-red/in/#',
    qos,
    datatype: 'utf8',
    broker: 'broker',
    nl: false,
    rap: true,
    rh: 0,
    wires: [['change']]
  },
  {
    id: 'change',
    type: 'function',
    z: 'tab',
    func: "return { topic: msg.topic.replace('/in/', '/out/'), payload: `${msg.payload} was here` }",
    outputs: 1,
    wires: [['out']]
  },
  { id: 'out', type: 'mqtt out', z: 'tab', topic: '', qos, retain: 'false', broker: 'broker', wires: [] }
]

fs.writeFileSync(path.join(userDir, 'flows.json'), JSON.stringify(flow))
RED.init(http.createServer(), {
  userDir,
  flowFile: 'flows.json',
  httpAdminRoot: false,
  httpNodeRoot: false,
  mqttReconnectTime: 200,
  telemetry: { enabled: false, updateNotification: false },
  logging: { console: { level: 'fatal', metrics: false, audit: false } }
})
RED.start()
