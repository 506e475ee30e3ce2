/**
 * The small changes that may be made to a file: swapped comparisons, constants at edges, negated conditions, removed
 * statements. Each is what a slip of the hand would do.
 */
import { parseSync } from "vite";

export interface Change {
  /** Below the project. */
  readonly file: string;
  /** From 1 on. */
  readonly line: number;
  /** In UTF-16 units of the text of the file; what stands there is replaced. */
  readonly start: number;
  readonly end: number;
  readonly before: string;
  readonly after: string;
}

/** A node of the tree: what ESTree and its extension for TypeScript have in common. */
export interface TreeNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [member: string]: unknown;
}

const SWAPPED: Readonly<Record<string, string>> = {
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "===": "!==",
  "!==": "===",
  "+": "-",
  "-": "+",
  "&&": "||",
  "||": "&&",
};

/** Throws an `Error` where the text cannot be parsed. */
export function parse(file: string, text: string): TreeNode {
  const { program, errors } = parseSync(file, text, { lang: "ts" });
  if (errors.length > 0) throw new Error(`${file}: ${errors[0]!.message}`);
  return program as unknown as TreeNode;
}

/** All changes of a file, in the order of its text. */
export function changesOf(file: string, text: string): Change[] {
  const changes: Change[] = [];
  const replace = (start: number, end: number, after: string) => {
    const line = text.slice(0, start).split("\n").length;
    changes.push({ file, line, start, end, before: text.slice(start, end), after });
  };
  walk(parse(file, text), (node) => {
    switch (node.type) {
      case "BinaryExpression":
      case "LogicalExpression":
        return swap(node, text, replace);
      case "Literal":
        if (typeof node.value === "boolean") replace(node.start, node.end, String(!node.value));
        else if (typeof node.value === "number" && Number.isSafeInteger(node.value)) {
          replace(node.start, node.end, String(node.value + 1));
        }
        return;
      case "IfStatement":
      case "WhileStatement":
      case "ConditionalExpression": {
        const test = node.test as TreeNode;
        return replace(test.start, test.end, `!(${text.slice(test.start, test.end)})`);
      }
      case "ExpressionStatement":
        if (isRemovable(node.expression as TreeNode)) replace(node.start, node.end, ";");
    }
  });
  return changes.sort((one, other) => one.start - other.start || one.end - other.end);
}

function swap(node: TreeNode, text: string, replace: (start: number, end: number, after: string) => void): void {
  const operator = node.operator as string;
  const after = Object.hasOwn(SWAPPED, operator) ? SWAPPED[operator] : undefined;
  if (after === undefined) return;
  const start = text.indexOf(operator, (node.left as TreeNode).end);
  replace(start, start + operator.length, after);
}

function isRemovable(expression: TreeNode): boolean {
  if (expression.type === "AwaitExpression" || expression.type === "UnaryExpression") {
    return isRemovable(expression.argument as TreeNode);
  }
  const isSuper = (expression.callee as TreeNode | undefined)?.type === "Super";
  return ["CallExpression", "AssignmentExpression", "UpdateExpression"].includes(expression.type) && !isSuper;
}

/** Visits every node that runs: no types, no imports. */
export function walk(node: TreeNode, visit: (node: TreeNode) => void): void {
  if (isType(node) || node.type === "ImportDeclaration" || node.type === "ExportAllDeclaration") return;
  visit(node);
  for (const child of Object.values(node)) {
    for (const each of Array.isArray(child) ? child : [child]) if (isNode(each)) walk(each, visit);
  }
}

const AROUND_VALUES = new Set(["TSAsExpression", "TSNonNullExpression", "TSSatisfiesExpression"]);

function isType(node: TreeNode): boolean {
  return node.type.startsWith("TS") && !AROUND_VALUES.has(node.type);
}

function isNode(value: unknown): value is TreeNode {
  return typeof value === "object" && value !== null && typeof (value as Partial<TreeNode>).type === "string";
}
