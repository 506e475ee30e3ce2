import net from "node:net";

/** Whether something accepts connections on this port of 127.0.0.1. */
export function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    socket.on("connect", () => (socket.destroy(), resolve(true))).on("error", () => resolve(false));
  });
}
