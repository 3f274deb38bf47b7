/** The middle one; of an even count the lower of the two. 0 for none. */
export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? 0;
}

/** `6,120` */
export function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}

/** `1.83` */
export function decimal(value: number, digits = 2): string {
  return value.toFixed(digits);
}

/** `6,120 (5,980 … 6,301)` */
export function spread(values: readonly number[], format: (value: number) => string = whole): string {
  if (values.length < 2) return format(median(values));
  return `${format(median(values))} (${format(Math.min(...values))} … ${format(Math.max(...values))})`;
}

/** A Markdown table; the first `texts` columns are text, the others are numbers. */
export function table(head: readonly string[], rows: readonly (readonly string[])[], texts = 1): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, index) => (index < texts ? '---' : '--:'))), ...rows.map(line)];
}
