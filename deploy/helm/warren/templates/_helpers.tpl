{{- define "warren.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: warren
{{- end }}

{{- define "warren.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- /* The configuration file. The bpf file system is mounted outside /sys, where the default AppArmor profiles of
container runtimes refuse to create files. A tunnel that an agent started would end with its pod. */ -}}
{{- define "warren.config" -}}
{{- $fixed := dict "discovery" "kubernetes" "bpf-dir" "/bpf/warren" "tunnel-process" "launcher" "metrics-address" (printf "%s:%v" .Values.metrics.address .Values.metrics.port) -}}
{{- toYaml (merge $fixed .Values.config) -}}
{{- end }}

{{- /* What every pod of Warren has: the node's network, and a place on every node. */ -}}
{{- define "warren.pod" -}}
serviceAccountName: warren
hostNetwork: true
# The way to the API server must not lead through the cluster's DNS.
dnsPolicy: Default
priorityClassName: {{ .Values.priorityClassName }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsUser: 0
  runAsGroup: 0
  seccompProfile:
    {{- toYaml .Values.securityContext.seccompProfile | nindent 4 }}
  {{- with .Values.securityContext.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* Of a container, by what it may do: a dict with "privileged" and "capabilities". The API refuses
allowPrivilegeEscalation: false beside privileged or SYS_ADMIN. */ -}}
{{- define "warren.may" -}}
securityContext:
  {{- if .privileged }}
  privileged: true
  {{- else }}
  allowPrivilegeEscalation: {{ has "SYS_ADMIN" .capabilities }}
  {{- end }}
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    {{- with .capabilities }}
    add: [{{ join ", " . }}]
    {{- end }}
{{- end }}

{{- define "warren.env" -}}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  {{- with .Values.apiServer.host }}
  - name: KUBERNETES_SERVICE_HOST
    value: {{ . | quote }}
  {{- end }}
  {{- with .Values.apiServer.port }}
  - name: KUBERNETES_SERVICE_PORT
    value: {{ . | quote }}
  {{- end }}
{{- end }}

{{- /* Of a probe: the agent answers on the node's network, of which every address of a node is its own. */ -}}
{{- define "warren.probe" -}}
host: {{ has .Values.metrics.address (list "0.0.0.0" "[::]") | ternary "127.0.0.1" (trimAll "[]" .Values.metrics.address) | quote }}
port: {{ .Values.metrics.port }}
{{- end }}
