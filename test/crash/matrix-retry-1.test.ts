import { describeMatrix } from './matrix.js';

describeMatrix('retry', 1);
