/** A server that answers 201 at once and does nothing: what the load generator can do by itself is measured on it. */
import { createServer } from 'node:net';

const BODY = '{"id":"01a2279f-b627-707f-b80a-c8e11a14e671","status":"succeeded","amount":"100.00","currency":"RUB"}';
const ANSWER = Buffer.from(
  `HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`,
);

const server = createServer({ noDelay: true }, (socket) => {
  socket.on('data', () => socket.write(ANSWER));
  socket.on('error', () => socket.destroy());
});
server.listen(0, '127.0.0.1', () => {
  process.send?.(server.address());
});
process.on('disconnect', () => process.exit());
