/**
 * Finds the listening sockets that a service manager has opened for this process (systemd's sd_listen_fds(3)):
 * LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES. They stay open while the process restarts, so no connection is refused
 * meanwhile.
 */
import type { AddressInfo } from "node:net";
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings_types.ts";
import type { Environment } from "../config/start_settings.ts";
import { ConfigError, type GatewayCore, type ListenOptions } from "../gateway/gateway.ts";
import { Failure } from "./failure.ts";

/** File descriptors of listening sockets. */
export interface PassedSockets {
  /** Used in place of HTTP_PORT, unless there are none. */
  readonly http: readonly number[];
  /** Used in place of HTTPS_PORT, unless there are none. */
  readonly https: readonly number[];
}

const NONE: PassedSockets = { http: [], https: [] };

/** The first one; the others follow (SD_LISTEN_FDS_START). */
const FIRST_FD = 3;
const NAMES: readonly string[] = ["http", "https"];

/**
 * The sockets that were passed to this process, `pid`. Their names decide what each is for; without names of ours the
 * first is for HTTP and the second for HTTPS. Throws a `Failure` for sockets that cannot be used by these settings.
 */
export function passedSockets(
  environment: Environment,
  pid: number,
  settings: Pick<Settings, "httpPort" | "workers">,
  log: Log,
): PassedSockets {
  const { LISTEN_FDS: given = "", LISTEN_PID: owner, LISTEN_FDNAMES: written } = environment;
  if (given === "") return NONE;
  if (owner !== String(pid)) {
    const whose = owner === undefined ? "no process (LISTEN_PID is not set)" : `process ${owner}`;
    const remedy = "start edge-gateway itself, or with exec, not through a program that stays in between";
    log.warn(`LISTEN_FDS is ignored: it is for ${whose}, this one is ${pid}; ${remedy}`);
    return NONE;
  }
  if (!/^[1-9]\d{0,3}$/.test(given))
    throw refused(`LISTEN_FDS: expected the number of sockets, found ${JSON.stringify(given)}`);
  const count = Number(given);
  const names = written === undefined ? [] : written.split(":");
  if (written !== undefined && names.length !== count)
    throw refused(`LISTEN_FDNAMES has ${names.length} names for ${count} sockets (LISTEN_FDS)`);
  const other = names.find((name) => !NAMES.includes(name));
  const isNamed = names.some((name) => NAMES.includes(name));
  if (isNamed && other !== undefined)
    throw refused(`LISTEN_FDNAMES: expected http or https for every socket, found ${JSON.stringify(other)}; ${NAMING}`);
  if (!isNamed && count > NAMES.length)
    throw refused(`${count} sockets are passed (LISTEN_FDS) whose names do not say what each is for; ${NAMING}`);
  const used = isNamed ? names : NAMES.slice(0, count);
  const fdsOf = (name: string) => used.flatMap((each, i) => (each === name ? FIRST_FD + i : []));
  const sockets = { http: fdsOf("http"), https: fdsOf("https") };
  if (sockets.http.length > 0 && settings.httpPort === null)
    throw refused("a socket for HTTP is passed (LISTEN_FDS), and HTTP_PORT is off: leave one of them out");
  // Workers accept on ports that they open together; a socket from outside would belong to one of them.
  if (settings.workers !== 1)
    throw refused(
      "sockets are passed (LISTEN_FDS), which only one process can use: set WORKERS to 1, " +
        "or start without the socket unit",
    );
  log.info("listening on sockets that were passed (LISTEN_FDS)", { http: sockets.http, https: sockets.https });
  return sockets;
}

/** Throws a `Failure` for a descriptor that is no listening socket. */
export async function listenOnPassed(
  gateway: GatewayCore,
  fds: readonly number[],
  secure: ListenOptions,
): Promise<AddressInfo[]> {
  const addresses: AddressInfo[] = [];
  for (const fd of fds) {
    try {
      addresses.push(await gateway.listen({ ...secure, fd }));
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      throw new Failure(
        `file descriptor ${fd}, passed by LISTEN_FDS, is no TCP socket to listen on: ${(error as Error).message}`,
        2,
      );
    }
  }
  return addresses;
}

const NAMING = "name them with FileDescriptorName=http and FileDescriptorName=https in the socket units";

/** Throws a `Failure` for sockets for HTTPS where there is no certificate. */
export function refuseHttps(): never {
  throw refused(
    "a socket for HTTPS is passed (LISTEN_FDS), and there is no certificate: name one in global.certificates or " +
      "SERVER_CERT_PATH",
  );
}

function refused(message: string): Failure {
  return new Failure(message, 2);
}
