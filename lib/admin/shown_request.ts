/**
 * Answers the GET requests that show the gateway: its configuration, settings, status, health, statistics and tests.
 */
import { compressed } from "../http/content_coding.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import { largeAnswer } from "./large_answers.ts";
import { placedStatus } from "./placed_status.ts";
import { json } from "./replies.ts";
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
  const figures = async (shown: () => unknown): Promise<Reply> => {
    await refresh("counts");
    return compressed(json(200, shown()), headers);
  };
  switch (path) {
    case "/gateway":
      return configurationReply(gateway, secrets === "masked", headers);
    case "/gateway/config":
      return json(200, configView(options, secrets));
    case "/gateway/status":
      return figures(() => placedStatus(gateway));
    case "/gateway/health":
      return figures(() => view(gateway.health));
    case "/gateway/stats":
      return figures(() => view(gateway.recentStats("all")));
    case "/gateway/tests":
      return json(200, testsView(gateway.lastTests, writtenTests(gateway, secrets)));
  }
}

/** Secrets are not compressed beside what others can choose. */
function configurationReply(gateway: InterfaceOptions["gateway"], isMasked: boolean, headers: HeaderList) {
  const shown = async () => gatewayView(isMasked ? gateway.maskedConfig : gateway.shownConfig);
  return largeAnswer(gateway, `configuration ${isMasked}`, isMasked ? headers : [], shown);
}
