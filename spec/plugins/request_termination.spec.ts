import { describe, expect, it } from "vitest";
import { requestTermination } from "../../lib/plugins/request_termination.ts";
import { atOnce, checked, exercise, instance, madeUpExchange } from "../support/exercise.ts";

function answer(config: object) {
  const { returned, forwarded } = exercise(instance(requestTermination, config), madeUpExchange());
  expect(forwarded).toBeNull();
  const { status, headers, body } = atOnce(returned);
  return { status, headers, body: body === null ? null : String(body) };
}

it("answers 503 without a body by default", () => {
  expect(answer({})).toEqual({ status: 503, headers: [], body: "" });
});

it("answers with the configured status, body, content type and headers", () => {
  expect(answer({ status: 410, body: "gone" })).toEqual({
    status: 410,
    headers: ["Content-Type", "text/plain; charset=utf-8"],
    body: "gone",
  });
  const config = {
    status: 200,
    body: '{"a":"é"}',
    content_type: "application/json",
    headers: { "Retry-After": "3600", "X-A": "" },
  };
  expect(answer(config)).toEqual({
    status: 200,
    headers: ["Retry-After", "3600", "X-A", "", "Content-Type", "application/json"],
    body: '{"a":"é"}',
  });
});

it.each([204, 304])("answers %d without any body, not even an empty one", (status) =>
  expect(answer({ status })).toEqual({ status, headers: [], body: null }),
);

it("notes no error code", () => {
  const exchange = madeUpExchange();
  exercise(instance(requestTermination, {}), exchange);
  expect(exchange.call.notes).toMatchObject({ code: null, fault: null });
});

describe("configuration", () => {
  it.each<[object, string]>([
    [{ status: 101 }, "status: expected an integer 200–599, found 101"],
    [{ status: 204, body: "x" }, "body: an answer with status 204 has no body"],
    [{ status: 205, body: "" }, "body: an answer with status 205 has no body"],
    [{ headers: { "a b": "x" } }, 'headers["a b"]: is not the name of a header'],
    [{ headers: { ":status": "200" } }, 'headers[":status"]: is not the name of a header'],
    [{ headers: { "content-TYPE": "x" } }, 'headers["content-TYPE"]: is set by "content_type"'],
    [{ headers: { "Content-Length": "1" } }, 'headers["Content-Length"]: is set by the gateway'],
    [{ headers: { "Transfer-Encoding": "chunked" } }, 'headers["Transfer-Encoding"]: is set by the gateway'],
    [{ headers: { Connection: "close" } }, "headers.Connection: is set by the gateway"],
    [{ headers: { a: "1", A: "2" } }, "headers.A: occurs twice, in different cases"],
    [
      { headers: { a: "x\r\nb: y" } },
      'headers.a: expected a header value: printable ASCII without blanks around it, found "x\\r\\nb: y"',
    ],
    [
      { headers: { a: " x" } },
      'headers.a: expected a header value: printable ASCII without blanks around it, found " x"',
    ],
    [
      { headers: { a: "x\t" } },
      'headers.a: expected a header value: printable ASCII without blanks around it, found "x\\t"',
    ],
    [{ content_type: " " }, 'content_type: expected a media type, found " "'],
    [{ content_type: "a\nb" }, 'content_type: expected a media type, found "a\\nb"'],
  ])("request_termination reports %j as a configuration error", (config, issue) =>
    expect(checked(requestTermination.schema, config).issues).toEqual([issue]),
  );
});
