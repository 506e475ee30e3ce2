/**
 * Answers the GET requests that show the gateway: its configuration, settings, status, health, statistics and tests.
 */
import { compressed } from "../http/content_coding.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import { eachInSlices, largeAnswer } from "./large_answers.ts";
import { placedStatus } from "./placed_status.ts";
import { json } from "./replies.ts";
import { statsInSlices } from "./sliced_stats.ts";
import { configView, gatewayView, testsView, view, type InterfaceOptions, type Secrets } from "./views.ts";
import { writtenTests } from "./written_tests.ts";

export type ShownPath =
  "/gateway" | "/gateway/config" | "/gateway/status" | "/gateway/health" | "/gateway/stats" | "/gateway/tests";

export async function shownRequest(
  path: ShownPath,
  { headers }: Inbound,
  options: InterfaceOptions,
  secrets: Secrets,
): Promise<Reply> {
  const { gateway, refresh } = options;
  const large = async (make: Parameters<typeof largeAnswer>[3]): Promise<Reply> => {
    await refresh("counts");
    return largeAnswer(gateway, path, headers, make);
  };
  switch (path) {
    case "/gateway":
      return configurationReply(gateway, secrets === "masked", headers);
    case "/gateway/config":
      return json(200, configView(options, secrets));
    case "/gateway/status":
      await refresh("counts");
      return compressed(json(200, placedStatus(gateway)), headers);
    case "/gateway/health":
      return large(async (slice) => ({
        services: await eachInSlices(gateway.health.services, slice, (each) => view(each)),
      }));
    case "/gateway/stats":
      return large(async (slice) => {
        const { services, ...others } = await statsInSlices(gateway, "all", slice);
        return { ...view(others), services: await eachInSlices(services, slice, (each) => view(each)) };
      });
    case "/gateway/tests":
      return json(200, testsView(gateway.lastTests, writtenTests(gateway, secrets)));
  }
}

/** Secrets are not compressed beside what others can choose. */
function configurationReply(gateway: InterfaceOptions["gateway"], isMasked: boolean, headers: HeaderList) {
  const shown = async () => gatewayView(isMasked ? gateway.maskedConfig : gateway.shownConfig);
  return largeAnswer(gateway, `configuration ${isMasked}`, isMasked ? headers : [], shown);
}
