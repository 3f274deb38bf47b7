import { existsSync } from 'node:fs';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Shell, startShell } from '../support/shell.js';

const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) =>
  existsSync(path),
);
if (CHROMIUM === undefined && process.env.CI !== 'true') {
  console.warn('No Chromium here: the Swagger UI is not tried out (Debian: apt-get install chromium).');
}

/** One operation of the page, opened. */
async function open(page: Page, operation_id: string) {
  const block = page.locator(`[id$="-${operation_id}"]`);
  await block.locator('.opblock-summary-control').click();
  return block;
}

// With CI=true a missing browser is a failure, not a reason to look away.
describe.skipIf(CHROMIUM === undefined && process.env.CI !== 'true')(
  '"Try it out" in the Swagger UI',
  { timeout: 60_000 },
  () => {
    let shell: Shell;
    let browser: Browser;
    let page: Page;
    const complaints: string[] = [];
    const hosts = new Set<string>();

    beforeAll(async () => {
      shell = await startShell();
      const key = await shell.client('reader-of-docs');
      browser = await chromium.launch({ executablePath: CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
      page = await browser.newPage();
      page.on('console', (message) => {
        if (/Content Security Policy|Refused/i.test(message.text())) complaints.push(message.text());
      });
      page.on('pageerror', (error) => complaints.push(error.message));
      page.on('request', (sent) => {
        if (!sent.url().startsWith('data:')) hosts.add(new URL(sent.url()).host);
      });
      await page.goto(`${shell.url}/docs`);
      await page.getByRole('button', { name: 'Authorize' }).first().click();
      await page.locator('.modal-ux input').fill(key);
      await page
        .locator('.modal-ux')
        .getByRole('button', { name: /^Apply credentials|Authorize/ })
        .click();
      await page.locator('.modal-ux .close-modal').click();
    }, 60_000);
    afterAll(async () => {
      await browser.close();
      await shell.close();
    });

    it('charges, replays, and meets the conflict', async () => {
      const charge = await open(page, 'createCharge');
      const body = charge.locator('textarea.body-param__text');
      const key = charge.locator('tr[data-param-name="Idempotency-Key"] input');
      expect(JSON.parse(await body.inputValue())).toMatchObject({ amount: '10.00', external_payment_id: 'order-1001' });
      expect(await key.inputValue()).toMatch(/^[0-9a-f-]{36}$/);

      /** Executes, and gives back what the page shows of the answer. */
      const send = async (): Promise<{ status: string; headers: string; body: Record<string, unknown> }> => {
        const answered = page.waitForResponse((response) => response.request().method() === 'POST');
        await charge.locator('.execute').click();
        const answer = await answered;
        const shown = charge.locator('.live-responses-table tbody tr.response');
        await expect.poll(() => shown.innerText()).toContain(answer.headers()['request-id']);
        const [body = '', headers = ''] = await shown.locator('pre').allInnerTexts();
        return { status: await shown.locator('.response-col_status').innerText(), headers, body: JSON.parse(body) };
      };

      const first = await send();
      expect(first.status).toContain('201');
      expect(first.body).toMatchObject({ status: 'succeeded', amount: '10.00' });

      const second = await send();
      expect(second.status).toContain('201');
      expect(second.body).toEqual(first.body);
      expect(second.headers).toContain('idempotent-replayed: true');

      await body.fill((await body.inputValue()).replace('10.00', '11.00'));
      const third = await send();
      expect(third.status).toContain('409');
      expect(third.body).toMatchObject({ code: 'idempotency_key_reused' });
    });

    it('came from this service alone and broke no policy', () => {
      expect([...hosts]).toEqual([new URL(shell.url).host]);
      expect(complaints).toEqual([]);
    });
  },
);
