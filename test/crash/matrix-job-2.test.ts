import { describeMatrix } from './matrix.js';

describeMatrix('job', 2);
