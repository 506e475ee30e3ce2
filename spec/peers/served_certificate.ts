/** The certificate that a gateway presents. */
import { once } from "node:events";
import tls, { type ConnectionOptions } from "node:tls";
import { onTestFinished } from "vitest";

/** The serial number of the certificate that a client gets who trusts this CA alone, or the code of its error. */
export async function serialAt(port: number, options: ConnectionOptions): Promise<string> {
  const socket = tls.connect({ host: "127.0.0.1", port, ...options });
  onTestFinished(() => void socket.destroy());
  try {
    await once(socket, "secureConnect");
    return socket.getPeerCertificate().serialNumber;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  } finally {
    socket.on("error", () => {}).destroy();
  }
}
