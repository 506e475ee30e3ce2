/**
 * Decides by which host names an administration interface may be used over plain HTTP. An attacker's page whose name
 * resolves to this machine (DNS rebinding) has the same origin as the interface; only the name in Host differs.
 */
import { isIP } from "node:net";

/**
 * `authority` is "host", "host:port", or "" where a request names no host, as no browser does. IP addresses and
 * `localhost` (RFC 6761 §6.3) do not depend on DNS. `names` in any case.
 */
export function allowedHosts(names: readonly string[]): (authority: string) => boolean {
  const known = new Set(["localhost", ...names].map(plain));
  return (authority) => {
    const host = authority.replace(/:\d*$/, "").replace(/^\[(.*)\]$/, "$1");
    return host === "" || isIP(host) !== 0 || known.has(plain(host));
  };
}

/** The dot at the end of a name only marks it as complete (RFC 1034 §3.1). */
function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, "");
}

export const HOST_NOT_ALLOWED =
  "Over plain HTTP this server is known by its IP address, as localhost, and by the names in ADMIN_HOSTS: " +
  "use one of them, or add this one.";
