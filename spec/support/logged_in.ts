/** Sessions of the admin interface of a running program. */
import { ask } from "./raw_client.ts";

/** Asks as this user, with JSON where there is a body; without a session where the login is refused. */
export async function loggedIn(
  port: number,
  { ADMIN_USER, ADMIN_PASSWORD }: { readonly ADMIN_USER: string; readonly ADMIN_PASSWORD: string },
) {
  const basic = `Basic ${Buffer.from(`${ADMIN_USER}:${ADMIN_PASSWORD}`).toString("base64")}`;
  const { headers } = await ask(port, { method: "POST", path: "/login", headers: { authorization: basic } });
  const cookie = headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
  return (method: string, path: string, body?: string, more: Record<string, string> = {}) =>
    ask(port, {
      method,
      path,
      headers: { cookie, ...(body !== undefined && { "content-type": "application/json" }), ...more },
      ...(body !== undefined && { body }),
    });
}
