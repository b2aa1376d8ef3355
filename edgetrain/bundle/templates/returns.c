
/* Weights change before all gradients are known. If a step fails, load the last saved state, and
   skip the failed minibatch when its turn comes again. */
static int advance(${net} *net, const ${net}_store *store) {
  static int64_t failed[${most}];
  static int failures;
  ${net}_report report;
  ${net}_progress(net, &report);
  for (int k = 0; k < failures; k++)
    if (failed[k] == report.step) return ${net}_pass(net);
  int status = ${net}_${call}(net);
  if (status != ${NET}_BROKEN || store == NULL || failures == ${most}) return status;
  failed[failures++] = report.step;
  return ${net}_load(net, store);
}
