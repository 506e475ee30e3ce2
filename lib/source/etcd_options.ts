/**
 * What settings say of an etcd cluster: its members, and the files with which a client shows who it is.
 */
import type { Clock } from "../base/clock.ts";
import { addressOf } from "../base/ip_address.ts";
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import type { SourceSettings } from "../config/settings_types.ts";
import type { EtcdOptions } from "./etcd_client.ts";

type Settings = Pick<SourceSettings, "url" | "caPath" | "certPath" | "keyPath" | "user">;

export function etcdOptions({ url, caPath, certPath, keyPath, user }: Settings, clock: Clock): EtcdOptions {
  const scheme = url.scheme === "etcds" ? "https" : "http";
  return {
    members: url.servers.map((server) => new URL(`${scheme}://${addressOf(server)}`)),
    tls: () => ({
      ...(caPath !== null && { ca: contentOf("CONFIG_CA_PATH", caPath) }),
      ...(certPath !== null && { cert: contentOf("CONFIG_CERT_PATH", certPath) }),
      ...(keyPath !== null && { key: contentOf("CONFIG_KEY_PATH", keyPath) }),
    }),
    login:
      user === null
        ? null
        : () => {
            const content = contentOf("ETCD_PASSWORD_FILE", user.passwordPath).toString();
            return { name: user.name, password: content.replace(/\r?\n$/, "") };
          },
    clock,
  };
}

function contentOf(setting: string, path: string): Buffer {
  try {
    return readRegularFile(path);
  } catch (error) {
    throw new Error(`${setting}: cannot read ${path}: ${whyUnreadable(error)}`);
  }
}
