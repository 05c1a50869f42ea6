// What a program in JavaScript does: sends, receives, deletes. Prints what it saw as JSON.
import {
  CreateQueueCommand, DeleteMessageBatchCommand, GetQueueAttributesCommand, ReceiveMessageCommand, SQSClient,
  SendMessageBatchCommand, SendMessageCommand,
} from "@aws-sdk/client-sqs";

const sqs = new SQSClient({ endpoint: process.env.ENDPOINT, region: "eu-west-1" });
const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: process.env.QUEUE }));
const MessageAttributes = { n: { DataType: "Number", StringValue: "7" } };
await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: "from JavaScript", MessageAttributes }));
const Entries = [{ Id: "a", MessageBody: "1" }, { Id: "b", MessageBody: "2" }];
const sent = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
const wanted = { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: ["All"] };
const { Messages } = await sqs.send(new ReceiveMessageCommand(wanted));
await sqs.send(new DeleteMessageBatchCommand({
  QueueUrl, Entries: Messages.map((m, n) => ({ Id: `${n}`, ReceiptHandle: m.ReceiptHandle })),
}));
const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }));
let error;
try {
  await sqs.send(new ReceiveMessageCommand({ QueueUrl: `${QueueUrl}-none` }));
} catch (caught) {
  error = caught.name;
}
console.log(JSON.stringify({
  url: QueueUrl, sent: sent.Successful.length, bodies: Messages.map((m) => m.Body),
  n: Messages[0].MessageAttributes.n.StringValue, left: Attributes.ApproximateNumberOfMessages, error,
}));
