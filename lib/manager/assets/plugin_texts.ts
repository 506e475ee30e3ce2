/**
 * Summarizes the settings of a plugin in one line.
 */
import type { Conditions, PluginConfig } from "./api.ts";
import { whereText } from "./conditions.ts";
import { milliseconds } from "./format.ts";
import { isRecord } from "./json_text.ts";
import { summaryOf, valueText } from "./setting_lines.ts";

type Configured = Pick<PluginConfig, "name" | "config">;

/** Whether it makes requests fail or wait on purpose. */
export function injectsFaults({ name, config }: Configured): boolean {
  return name === "fault" && config.percent !== 0;
}

/**
 * "200 ms delay, then 503 for 10 % of requests", "copies 5 % to http://10.0.0.7:8080"; for other kinds the first `most`
 * settings.
 */
export function pluginText(plugin: Configured, most?: number): string {
  const { name, config } = plugin;
  if (name === "fault") return faultText(config);
  if (name === "mirror" && typeof config.url === "string") return `copies ${percentOf(config)} to ${config.url}`;
  if (name === "mcp") return toolsText(config);
  return summaryOf(config, most);
}

/** Who may use which tools: "tools search, orders_* · support also refund". */
function toolsText({ tools, tools_by_group: ofGroups }: PluginConfig["config"]): string {
  const everybody = tools === undefined ? "all tools" : `tools ${valueText(tools)}`;
  const more = isRecord(ofGroups) ? Object.entries(ofGroups) : [];
  return [everybody, ...more.map(([group, list]) => `${group} also ${valueText(list)}`)].join(" · ");
}

function faultText(config: PluginConfig["config"]): string {
  const delay =
    typeof config.delay_ms === "number" && config.delay_ms > 0 ? `${milliseconds(config.delay_ms)} delay` : "";
  const status = typeof config.status === "number" ? String(config.status) : "";
  const effect = [delay, status].filter((part) => part !== "").join(", then ");
  return `${effect} for ${percentOf(config)} of requests${whereText(config.match as Conditions | undefined)}`;
}

function percentOf({ percent = 100 }: PluginConfig["config"]): string {
  return `${String(percent)} %`;
}
