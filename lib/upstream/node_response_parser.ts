/**
 * Parses responses with Node's lenient HTTP/1.1 parser, for upstreams whose responses `response_parser.ts` refuses.
 */
import { Duplex } from "node:stream";
import { requestOver } from "../base/egress_clients.ts";
import { ignore } from "../base/errors.ts";
import { hasToken, headerValue, headerValues } from "../http/headers.ts";
import { invalidity, type NodeResponse } from "./node_response.ts";
import { keepAliveMs, MAX_RESPONSE_HEAD_BYTES, type ResponseSink } from "./response_parser.ts";

/**
 * Used as `ResponseParser`. Node parses only responses to its own requests: for each response a request is made that is
 * never sent, over a stream that carries the bytes of the upstream.
 */
export class NodeResponseParser {
  keepsFor = Infinity;
  #stream: Duplex | null = null;
  #sink: ResponseSink | null = null;
  #response: NodeResponse | null = null;
  /** Why the head cannot be passed on. */
  #invalidHead: string | null = null;
  /** Why Node could not parse on. */
  #malformed: string | null = null;

  begin(method: string, sink: ResponseSink): void {
    const stream = new Duplex({ read: ignore, write: ignore });
    this.#stream = stream;
    this.#sink = sink;
    this.#response = this.#invalidHead = this.#malformed = null;
    // Other methods make no difference, except CONNECT, which is not sent.
    const parsedAs = method === "HEAD" ? "HEAD" : "GET";
    const request = requestOver(stream, { method: parsedAs, maxHeaderSize: MAX_RESPONSE_HEAD_BYTES });
    // Beyond Node's default of 1000, headers would be dropped silently; their size is limited all the same.
    request.maxHeadersCount = 0;
    request.on("information", (head) => sink.informed(head));
    request.on("response", (response) => this.#begin(response as NodeResponse, sink));
    request.on("upgrade", (response: NodeResponse, _stream: Duplex, firstBytes: Buffer) => {
      // Behind the final response it is surplus, as any second response is.
      if (this.#response !== null) return void stream.destroy();
      this.close();
      sink.switched(response, firstBytes);
    });
    request.on("error", ({ code, message }: NodeJS.ErrnoException) => {
      // Other errors say that the stream has ended.
      if (code?.startsWith("HPE_")) this.#malformed ??= message;
    });
  }

  feed(chunk: Buffer): string | null {
    // By an event, not by `push`: it is parsed at once, and may be overwritten after this call.
    if (this.#stream?.emit("data", chunk) === false) return "the upstream answered before it was asked";
    return this.#deliver("reusable");
  }

  endOfConnection(): boolean {
    this.#stream?.emit("end");
    return this.#deliver("spent") === null && this.#response?.complete === true;
  }

  /** Frees Node's parser. */
  close(): void {
    this.#stream?.destroy();
    this.#stream = this.#sink = null;
  }

  #begin(response: NodeResponse, sink: ResponseSink): void {
    this.#response = response;
    response.on("error", ignore);
    this.#invalidHead = invalidity(response);
    if (this.#invalidHead === null) sink.answered(response, null);
  }

  #deliver(connection: "reusable" | "spent"): string | null {
    const response = this.#response;
    if (this.#invalidHead !== null || response === null) return this.#invalidHead ?? this.#malformed;
    const { complete, rawHeaders, httpVersion } = response;
    // Bytes after a complete response do not make it invalid.
    if (this.#malformed !== null && !complete) return this.#malformed;
    const sink = this.#sink!;
    const part = response.read() as Buffer | null;
    if (part !== null) sink.body(part);
    if (!complete) return null;
    const options = headerValues(rawHeaders, "connection").join();
    this.keepsFor = keepAliveMs(headerValue(rawHeaders, "keep-alive") ?? "");
    const isKept = !hasToken(options, "close") && (httpVersion === "1.1" || hasToken(options, "keep-alive"));
    // Node closes the stream when a second response comes.
    const isSurplus = this.#malformed !== null || this.#stream?.destroyed !== false;
    sink.ended(response.rawTrailers, isKept && !isSurplus ? connection : "spent");
    return null;
  }
}
