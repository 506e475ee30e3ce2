/** Runs the curl commands of the documents without curl. */
import http from "node:http";

/** The flags that the documents use: -i, -s, -X, -H, -A, -u, -d, -o, -w, -b, -c, --path-as-is. */
export interface Curl {
  readonly url: string;
  readonly method: string;
  readonly headers: readonly string[];
  readonly body: string;
  readonly showsHead: boolean;
  readonly dropsBody: boolean;
  readonly format: string;
  readonly savesCookie: boolean;
}

/** Splits a shell line into words; quotes are removed. */
export function wordsOf(line: string): string[] {
  const tokens = line.match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? [];
  return tokens.map((token) => token.replace(/'([^']*)'|"([^"]*)"/g, (_, single, double) => single ?? double));
}

/** Throws for a flag that it does not know. */
export function readCurl(line: string, cookie: string): Curl {
  const [program, ...tokens] = wordsOf(line);
  if (program !== "curl") throw new Error(`not a curl line: ${line}`);
  const headers: string[] = [];
  let [url, method, body, format] = ["", "", "", ""];
  let [showsHead, dropsBody, savesCookie] = [false, false, false];
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (token === "-i") showsHead = true;
    else if (token === "-s" || token === "--path-as-is") continue;
    else if (token === "-X") method = tokens[++i]!;
    else if (token === "-H") headers.push(...tokens[++i]!.split(/: (.*)/, 2));
    else if (token === "-A") headers.push("User-Agent", tokens[++i]!);
    else if (token === "-u") headers.push("Authorization", `Basic ${Buffer.from(tokens[++i]!).toString("base64")}`);
    else if (token === "-d") body = tokens[++i]!;
    else if (token === "-D" && tokens[i + 1] === "-") (i++, (showsHead = true));
    else if (token === "-o") (i++, (dropsBody = true));
    else if (token === "-w") format = tokens[++i]!;
    else if (token === "-b") (i++, headers.push("Cookie", cookie));
    else if (token === "-c") (i++, (savesCookie = true));
    else if (token.startsWith("-")) throw new Error(`unknown flag ${token} in: ${line}`);
    else url = token;
  }
  // curl writes the head of -i to the same file as the body.
  if (dropsBody && tokens.includes("-i")) throw new Error(`-i with -o prints nothing: ${line}`);
  if (method === "") method = body === "" ? "GET" : "POST";
  return { url, method, headers, body, showsHead, dropsBody, format, savesCookie };
}

export interface Printed {
  readonly out: string;
  /** The cookie for later commands. */
  readonly cookie: string;
}

/** Runs a command. `portOf` maps a port in the documents to the real one. */
export async function runCurl(line: string, portOf: (port: number) => number, cookie: string): Promise<Printed> {
  const command = readCurl(line, cookie);
  const [, authority = "", target = "/"] = /^http:\/\/([^/]+)(\/.*)?$/.exec(command.url) ?? [];
  const port = portOf(Number(authority.split(":")[1]));
  // Host keeps the documented port, so that replies are as in the documents.
  const headers = ["Host", authority, ...command.headers];
  if (command.body !== "") headers.push("Content-Length", String(Buffer.byteLength(command.body)));
  if (!headers.includes("User-Agent")) headers.push("User-Agent", "curl/8.14.1");
  if (!headers.includes("Accept")) headers.push("Accept", "*/*");
  return new Promise((resolve, reject) => {
    const flat = headers as unknown as http.OutgoingHttpHeaders;
    const options = { host: "127.0.0.1", port, method: command.method, path: target, headers: flat, agent: false };
    const request = http.request(options, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        const pairs = response.rawHeaders.flatMap((name, i, all) => (i % 2 === 0 ? [`${name}: ${all[i + 1]}`] : []));
        const head = command.showsHead
          ? `HTTP/1.1 ${response.statusCode} ${response.statusMessage}\n${pairs.join("\n")}\n\n`
          : "";
        const written = command.format.replace("%{http_code}", String(response.statusCode)).replaceAll("\\n", "\n");
        const given = response.headers["set-cookie"]?.[0]?.split(";")[0];
        const body = command.dropsBody ? "" : Buffer.concat(chunks).toString();
        resolve({ out: head + body + written, cookie: command.savesCookie && given !== undefined ? given : cookie });
      });
    });
    request.on("error", reject);
    request.end(command.body);
  });
}
