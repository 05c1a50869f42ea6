// BullMQ: added 1000 at a time; one worker with 100 jobs at once, ended jobs removed. The protocol is in counting.py.
import { Queue, Worker } from "bullmq";

const [url, count] = [new URL(process.argv[2]), Number(process.argv[3])];
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const queue = new Queue("bench", { connection });
const one = { name: "nothing", data: { payload: "x".repeat(200) }, opts: { removeOnComplete: true } };
await queue.waitUntilReady();

let began = performance.now();
for (let start = 0; start < count; start += 1000) {
  await queue.addBulk(Array(Math.min(1000, count - start)).fill(one));
}
const fill = (performance.now() - began) / 1000;

let ran = 0;
const drain = await new Promise((resolve) => {
  new Worker(
    "bench",
    async () => {
      if (ran++ === 0) began = performance.now();
      if (ran === count) resolve((performance.now() - began) / 1000);
    },
    { connection, concurrency: 100 },
  );
});
console.log(JSON.stringify({ fill, drain }));
process.exit(0);
