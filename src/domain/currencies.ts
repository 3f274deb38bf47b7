/**
 * ISO 4217 currencies by the number of digits after the decimal point.
 *
 * Made from the table of dinero.js 2.0.2 with these corrections: MGA and MRU have two digits (their fifths are not
 * decimal), BGN is gone (euro in Bulgaria since 2026-01-01). Left out, because nobody can be charged in them: XAU, XAG,
 * XPT, XPD, XBA to XBD, XDR, XSU, XUA, XAD (units of account), XTS (tests) and XXX (none). Not from `Intl`: that follows CLDR,
 * which differs from ISO (HUF and IDR have 0 digits there). docs/adr/0010-currencies.md says more.
 */
const CODES_BY_DIGITS: readonly string[] = [
  // None: an amount has no decimal point.
  'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF',
  // One: nobody since MGA and MRU are counted in hundredths.
  '',
  `AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY COP
   COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR
   JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN
   NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL
   THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG`,
  'BHD IQD JOD KWD LYD OMR TND',
  'CLF UYW',
];

/** Currency code → digits after the decimal point. */
export const CURRENCY_DIGITS: ReadonlyMap<string, number> = new Map(
  CODES_BY_DIGITS.flatMap((codes, digits) => (codes.match(/[A-Z]{3}/g) ?? []).map((code) => [code, digits] as const)),
);
