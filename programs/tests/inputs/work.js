// Worker threads with buffers, zlib, hashing and WebAssembly memory; prints digests.
"use strict";
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads");
const { createHash } = require("node:crypto");
const { execFileSync } = require("node:child_process");
const zlib = require("node:zlib");

const digest = (data) => createHash("sha256").update(data).digest("hex").slice(0, 16);

function job(seed) {
  const words = new Map();
  let word = seed;
  for (let i = 0; i < 50000; i++) {
    word = (Math.imul(word, 1103515245) + 12345) >>> 0;
    const key = `w${word % 5003}`;
    words.set(key, (words.get(key) ?? "") + String.fromCharCode(97 + (word % 26)));
  }
  const text = JSON.stringify([...words].sort());
  const buffers = [];
  for (let i = 1; i < 400; i++) buffers.push(Buffer.allocUnsafeSlow(i * 97).fill(i % 256));
  const packed = zlib.gzipSync(Buffer.concat([Buffer.from(text), ...buffers]));
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 64 });
  memory.grow(32);
  const unpacked = zlib.gunzipSync(packed);
  return { seed, text: digest(text), data: digest(unpacked), pages: memory.buffer.byteLength };
}

function runWorker(seed) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: { seed } });
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}

async function main() {
  const scale = Number(process.argv[2]);
  for (let round = 0; round < 2 * scale; round++) {
    const seeds = [1, 2, 3, 4].map((n) => round * 4 + n);
    const results = await Promise.all(seeds.map(runWorker));
    for (const result of results) console.log(JSON.stringify(result));
  }
  const idle = new Worker("setInterval(() => {}, 1000)", { eval: true });
  await new Promise((resolve) => idle.once("online", resolve));
  console.log("terminated", await idle.terminate());
  console.log("child", execFileSync(process.execPath, ["-p", "6 * 7"]).toString().trim());
}

if (isMainThread) main();
else parentPort.postMessage(job(workerData.seed));
