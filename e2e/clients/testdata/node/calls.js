// Makes calls with @grpc/grpc-js. Input and output are described in client_test.go.
//
//     node calls.js HOST:PORT [FILE]
'use strict';

const fs = require('fs');
const readline = require('readline');
const grpc = require('@grpc/grpc-js');

const path = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';
const [address, authority] = process.argv.slice(2);
const credentials = authority
  ? grpc.credentials.createSsl(fs.readFileSync(authority))
  : grpc.credentials.createInsecure();
const client = new grpc.Client(address, credentials);

function answer(err, reply) {
  if (err) return `${grpc.status[err.code]}: ${err.details}`;
  // overall_code is the first field.
  return { '0801': 'OK', '0802': 'OVER_LIMIT' }[reply.toString('hex', 0, 2)] || reply.toString('hex');
}

async function main() {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (;;) {
    const { value, done } = await lines.next();
    if (done) break;
    const [calls, timeout, header, cancel, first, request] = value.split(' ');
    const metadata = new grpc.Metadata();
    if (Number(header)) metadata.set('x-large', 'm'.repeat(Number(header)));
    const begun = [];
    const begin = (message) => new Promise((resolve) => {
      begun.push(client.makeUnaryRequest(
        path, (m) => m, (m) => m, Buffer.from(message, 'hex'), metadata,
        { deadline: Date.now() + Number(timeout) }, (err, reply) => resolve(answer(err, reply))));
    });
    const answers = [];
    if (first !== '-') answers.push(begin(first));
    for (let i = 0; i < Number(calls); i++) answers.push(begin(request));
    if (cancel === '1') {
      process.stdout.write('begun\n');
      await lines.next();
      for (const call of begun) call.cancel();
    }
    const counts = new Map();
    for (const text of await Promise.all(answers)) counts.set(text, (counts.get(text) || 0) + 1);
    let out = '';
    for (const [text, n] of counts) out += `${n} ${text}\n`;
    process.stdout.write(out + '\n');
  }
  client.close();
}

main();
